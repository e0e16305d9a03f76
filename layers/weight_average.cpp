// SPDX-License-Identifier: MIT
#include "layers/weight_average.h"

#include <cmath>
#include <map>

#include "engine/kernels/elementwise.h"
#include "layers/weight.h"

namespace ab {
namespace {

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
