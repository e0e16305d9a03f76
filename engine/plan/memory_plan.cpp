// SPDX-License-Identifier: MIT
#include "engine/plan/memory_plan.h"

namespace ab {
namespace {

constexpr std::int64_t kFloatBytes = 4;

}  // namespace

MemoryUse memory_of_no_method(const ModelSizes& sizes, const PlannedRun& run) {
  MemoryUse use;
  for (const auto& [dtype, elements] : sizes.buffers_by_type)
    use.buffers += elements * static_cast<std::int64_t>(size_of(dtype));
  if (!run.averages_weights) return use;
  use.average = use.buffers;
  for (const ModelSizes::Parameter& p : sizes.params) use.average += kFloatBytes * p.elements;
  return use;
}

MemoryUse memory_at_full_rank(const ModelSizes& sizes, const PlannedRun& run) {
  MemoryUse use = memory_of_no_method(sizes, run);
  for (const ModelSizes::Parameter& p : sizes.params) {
    use.weights += kFloatBytes * p.elements;
    if (p.trainable) use.gradients += kFloatBytes * p.elements;
  }
  if (run.world_size > 1) use.buckets = bucket_memory(use.gradients, run.gradients.dtype);
  use.optimizer = run.moments_per_parameter * use.gradients;
  return use;
}

}  // namespace ab
