// SPDX-License-Identifier: MIT
#include "apps/plan/activations.h"

#include <algorithm>

#include "apps/train/train_step.h"
#include "engine/core/machine.h"
#include "engine/core/memory.h"
#include "engine/core/threads.h"

namespace ab {
namespace {

/// By steps with `few` images and with twice as many.
std::int64_t bytes_by(std::int64_t few, const ModelSpec& spec, const TrainConfig& config, Device device) {
  Memory& device_memory = memory(device);
  const std::unique_ptr<Layer> model = make_model(spec, device);
  for (const Param* p : inventory_of(*model).params)
    device_memory.set_zero(p->value.value().raw(), p->value.value().bytes());
  TrainStep step(*model, device, precision_named(config.precision), config.label_smoothing, GraphUse::off);
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
  taken_by_step(few);  // makes gradients
  const Taken by_few = taken_by_step(few), by_twice_as_many = taken_by_step(2 * few);
  return std::max(
             {std::int64_t{0}, by_twice_as_many.tensors - by_few.tensors, by_twice_as_many.process - by_few.process}) /
         few;
}

}  // namespace

std::int64_t activation_bytes(const ModelSpec& asked, const TrainConfig& config, Device device) {
  ModelSpec spec = asked;
  spec.draw = false;
  start_compute_threads();
  // With fewer small images, scratch for the gradient of a large weight may need more than activations do.
  const std::int64_t wanted = 32768 / (spec.image_size * spec.image_size);
  const std::int64_t fewest =
      wanted > 0 ? 2 : 1;  // a batch norm has no statistics of one image that has become one pixel
  std::int64_t few = std::clamp(wanted, fewest, std::max(fewest, config.batch_size / 2));
  const BoundedHostMemory bounded(available_host_bytes_of_each());
  for (;; few = std::max(fewest, few / 4)) {
    try {
      const std::int64_t bytes = bytes_by(few, spec, config, device);
      memory(device).restart_peak();
      return bytes;
    } catch (const OutOfMemory&) {
      memory(device).restart_peak();
      if (few == fewest) throw;
    }
  }
}

}  // namespace ab
