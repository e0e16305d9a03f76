// SPDX-License-Identifier: MIT
#include "apps/plan/activations.h"

#include <algorithm>

#include "apps/train/train_step.h"
#include "engine/core/available_memory.h"
#include "engine/core/memory.h"

namespace ab {

std::int64_t activation_bytes(const ModelSpec& asked, const TrainConfig& config, Device device) {
  ModelSpec spec = asked;
  spec.draw = false;
  const std::unique_ptr<Layer> model = make_model(spec, device);
  for (const Param* p : inventory_of(*model).params)
    memory(device).set_zero(p->value.value().raw(), p->value.value().bytes());
  const Precision precision = precision_named(config.precision);
  TrainStep step(*model, device, precision, config.label_smoothing, GraphUse::off);
  Memory& device_memory = memory(device);
  struct Taken {
    std::int64_t tensors, process;
  };
  const auto taken_by_step = [&](std::int64_t count) {
    Batch batch;
    batch.images = Tensor::zeros({count, spec.image_size, spec.image_size, 3}, DType::float32, device);
    batch.labels = Tensor::zeros({count}, DType::int64, device);
    device_memory.restart_peak();
    step.run(batch, {});
    // On a CPU, blocks of one size do not serve others, and libraries have scratch of their own.
    return Taken{device_memory.stats().peak_bytes, device.kind == DeviceKind::cpu ? resident_bytes() : 0};
  };
  // With fewer small images, scratch for the gradient of a large weight may need more than activations do.
  const std::int64_t few = std::clamp<std::int64_t>(32768 / (spec.image_size * spec.image_size), 1,
                                                    std::max<std::int64_t>(1, config.batch_size / 2));
  taken_by_step(few);  // makes gradients
  const Taken by_few = taken_by_step(few), by_twice_as_many = taken_by_step(2 * few);
  device_memory.restart_peak();
  return std::max(
             {std::int64_t{0}, by_twice_as_many.tensors - by_few.tensors, by_twice_as_many.process - by_few.process}) /
         few;
}

}  // namespace ab
