// SPDX-License-Identifier: MIT
#include "layers/model_state.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "engine/kernels/elementwise.h"
#include "layers/weight.h"

namespace ab {
namespace {

std::string key_of(const std::string& name) { return "model." + name; }
std::string mode_key(const Weight& weight) { return key_of(weight.name() + ".mode"); }
std::string rest_key(const Weight& weight) { return key_of(weight.name() + ".rest"); }

constexpr std::pair<Weight::Mode, const char*> kModes[] = {{Weight::Mode::full, "full"},
                                                           {Weight::Mode::train_a, "train_a"},
                                                           {Weight::Mode::train_b, "train_b"},
                                                           {Weight::Mode::train_both, "train_both"}};

Weight::Mode mode_named(const std::string& text) {
  const auto at = std::ranges::find(kModes, text, [](const auto& mode) { return mode.second; });
  if (at != std::end(kModes)) return at->first;
  throw Error(ErrorKind::checkpoint, fmt::format("the checkpoint holds a weight in the unknown form '{}'", text));
}

void fill(const Tensor& value, const std::string& name, const StateDict& state) {
  const Tensor saved = state.tensor(key_of(name));
  AB_CHECK_KIND(checkpoint, saved.shape() == value.shape() && saved.dtype() == value.dtype(),
                "the checkpoint holds {} as {} {}, the model has {} {}", name, name_of(saved.dtype()),
                saved.shape().str(), name_of(value.dtype()), value.shape().str());
  value.copy_from(saved);
}

void restore_form(Weight& weight, const StateDict& state) {
  const Weight::Mode mode = mode_named(state.text(mode_key(weight)));
  if (mode == Weight::Mode::full) return;
  const Device device = weight.dense().value.value().device();
  const Tensor rest = state.has(rest_key(weight)) ? state.tensor(rest_key(weight)).to(device) : Tensor();
  const auto factor = [&](const Param& p) { return state.tensor(key_of(p.name)).clone().to(device); };
  weight.factorise(factor(weight.outer()), factor(weight.inner()), mode, rest);
}

/// Every trained value by name, weights in their dense form.
std::map<std::string, Tensor> dense_values(Layer& model) {
  const NoGradScope no_grad;
  const Inventory inventory = inventory_of(model);
  std::map<std::string, Tensor> values;
  for (const Param* p : inventory.params)
    if (!p->is_factor()) values[p->name] = p->value.value();
  for (const Weight* weight : inventory.weights) values[weight->name()] = weight->formed().value();
  return values;
}

void copy_buffers(Layer& from, Layer& to) {
  const std::vector<Buffer> source = inventory_of(from).buffers, target = inventory_of(to).buffers;
  AB_ASSERT(source.size() == target.size());
  for (std::size_t i = 0; i < source.size(); ++i) target[i].value.copy_from(source[i].value);
}

}  // namespace

std::vector<Param*> all_params(Layer& model) {
  const Inventory inventory = inventory_of(model);
  std::vector<Param*> params;
  for (Weight* weight : inventory.weights)
    for (Param* p : {&weight->dense(), &weight->a(), &weight->b()}) params.push_back(p);
  for (Param* p : inventory.params)
    if (std::find(params.begin(), params.end(), p) == params.end()) params.push_back(p);
  return params;
}

void save_model(Layer& model, StateDict& state) {
  const Inventory inventory = inventory_of(model);
  for (const Param* p : inventory.params) state.put(key_of(p->name), p->value.value());
  for (const Buffer& buffer : inventory.buffers) state.put(key_of(buffer.name), buffer.value);
  for (const Weight* weight : inventory.weights) {
    const auto mode = std::ranges::find(kModes, weight->mode(), [](const auto& named) { return named.first; });
    state.put(mode_key(*weight), std::string(mode->second));
    if (weight->rest().defined()) state.put(rest_key(*weight), weight->rest());
  }
}

void load_model(Layer& model, const StateDict& state) {
  for (Weight* weight : inventory_of(model).weights) restore_form(*weight, state);
  const Inventory inventory = inventory_of(model);
  for (const Param* p : inventory.params) fill(p->value.value(), p->name, state);
  for (const Buffer& buffer : inventory.buffers) fill(buffer.value, buffer.name, state);
}

WeightAverage::WeightAverage(std::unique_ptr<Layer> average, Layer& trained, double decay)
    : average_(std::move(average)), decay_(decay) {
  const std::map<std::string, Tensor> values = dense_values(trained);
  for (const Param* p : inventory_of(*average_).params) p->value.value().copy_from(values.at(p->name));
}

void WeightAverage::catch_up(Layer& trained) {
  const double keep = std::pow(decay_, static_cast<double>(waited_));
  waited_ = 0;
  const std::map<std::string, Tensor> values = dense_values(trained);
  for (const Param* p : inventory_of(*average_).params) {
    scale_in_place(p->value.value(), keep);
    axpy(1 - keep, values.at(p->name), p->value.value());
  }
}

Layer& WeightAverage::model(Layer& trained) {
  copy_buffers(trained, *average_);
  return *average_;
}

std::unique_ptr<Layer> WeightAverage::release(Layer& trained) && {
  model(trained);
  return std::move(average_);
}

void WeightAverage::save(StateDict& state) const {
  for (const Param* p : inventory_of(*average_).params) state.put("average." + p->name, p->value.value());
  state.put("average.waited", waited_);
}

void WeightAverage::load(const StateDict& saved) {
  for (const Param* p : inventory_of(*average_).params) p->value.value().copy_from(saved.tensor("average." + p->name));
  waited_ = saved.integer("average.waited");
}

}  // namespace ab
