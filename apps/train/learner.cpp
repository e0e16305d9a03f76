// SPDX-License-Identifier: MIT
#include "apps/train/learner.h"

#include <algorithm>

#include "apps/settings/hardware.h"
#include "apps/train/build_run.h"
#include "data/transform.h"
#include "layers/whitening.h"

namespace ab {

Device device_of(Layer& model) {
  const Inventory inventory = inventory_of(model);
  return inventory.params.empty() ? Device{} : inventory.params.front()->value.value().device();
}

namespace {

constexpr std::int64_t kImagesToWhiten = 5000;

/// Images from all over the set, normalised; fewer where `config` skips bad ones.   [N, side, side, 3]
Tensor some_images(const TrainConfig& config, const Dataset& set, int side) {
  const std::int64_t most = std::min(set.count, kImagesToWhiten);
  const Tensor images({most, side, side, 3}, DType::float32);
  ImageTransform transform(set, side, side);
  Image decoded;
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < most; ++i) try {
      transform.prepare(set.read(i * set.count / most, decoded), images.data<float>() + count * 3 * side * side);
      ++count;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::data || config.on_bad_image == OnBadImage::fail) throw;
    }
  return images.slice(0, count);
}

/// Makes the layers of `model` that training images make.
void whiten(Layer& model, const TrainConfig& config, const Dataset& set, int side) {
  const std::vector<Whitening*> layers = inventory_of(model).whitenings;
  if (layers.empty()) return;
  const Tensor images = some_images(config, set, side);
  for (Whitening* layer : layers) layer->fit(images);
}

}  // namespace

Learner::Learner(const TrainConfig& config, const Method& method, Comm& world, const Dataset& images,
                 const LrSchedule& schedule, std::unique_ptr<Layer> start, bool goes_on)
    : device(start ? device_of(*start) : choose_device(config.device)),
      precision(precision_named(config.precision)),
      model(std::move(start)) {
  ModelSpec spec = make_model_spec(config, images.classes, images.height);
  if (!model) {
    model = make_model(spec, device);
    // The strategy gives all ranks the model of rank 0.
    if (!goes_on && world.rank() == 0) whiten(*model, config, images, static_cast<int>(spec.image_size));
  }
  optimizer = make_optimizer(config, inventory_of(*model).params, &world);
  if (precision == Precision::fp16) loss_scale.emplace();
  strategy = make_strategy(method, config, *model, world, schedule);
  if (config.ema_decay > 0) {
    spec.draw = false;
    average = std::make_unique<WeightAverage>(make_model(spec, device), *model, config.ema_decay);
  }
}

void Learner::update(TrainState& state, double learning_rate) {
  optimizer->step(learning_rate);
  if (loss_scale) loss_scale->update(optimizer->read_grad_norm());
  ++state.step;
}

void Learner::update_average() {
  if (average) strategy->replicas_agree() ? average->update(*model) : average->wait();
}

std::vector<Tensor> Learner::buffers() const {
  std::vector<Tensor> result;
  for (const Buffer& buffer : inventory_of(*model).buffers) result.push_back(buffer.value);
  return result;
}

std::vector<Tensor> Learner::tensors() const {
  std::vector<Tensor> result = parameters();
  for (const Tensor& buffer : buffers()) result.push_back(buffer);
  return result;
}

std::vector<Tensor> Learner::parameters() const {
  std::vector<Tensor> result;
  for (const Param* p : inventory_of(*model).params) result.push_back(p->value.value());
  return result;
}

std::vector<std::string> Learner::names() const {
  std::vector<std::string> result;
  for (const Param* p : inventory_of(*model).params) result.push_back(p->name);
  for (const Buffer& buffer : inventory_of(*model).buffers) result.push_back(buffer.name);
  return result;
}

void Learner::save(StateDict& dict) {
  save_model(*model, dict);
  optimizer->save(dict);
  strategy->save(dict);
  if (average) average->save(dict);
  if (loss_scale) loss_scale->save(dict);
}

void Learner::load(const StateDict& dict, TrainState& state) {
  load_model(*model, dict);
  optimizer->load(dict, all_params(*model), device);
  strategy->load(dict, state);
  if (average) average->load(dict);
  if (loss_scale) loss_scale->load(dict);
}

}  // namespace ab
