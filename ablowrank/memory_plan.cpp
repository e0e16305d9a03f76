// SPDX-License-Identifier: MIT
#include "ablowrank/memory_plan.h"

namespace ab {
namespace {

constexpr std::int64_t kFloatBytes = 4;

std::int64_t buffer_bytes(const ModelSizes& sizes) {
  std::int64_t bytes = 0;
  for (const auto& [dtype, elements] : sizes.buffers_by_type)
    bytes += elements * static_cast<std::int64_t>(size_of(dtype));
  return bytes;
}

std::int64_t average_bytes(const ModelSizes& sizes, const PlannedRun& run) {
  if (!run.averages_weights) return 0;
  std::int64_t bytes = buffer_bytes(sizes);
  for (const PlannedParam& p : sizes.params) bytes += kFloatBytes * p.elements;
  return bytes;
}

}  // namespace

MemoryUse memory_at_full_rank(Layer& model, const PlannedRun& run) {
  const ModelSizes sizes(model, {}, false);
  MemoryUse use;
  for (const PlannedParam& p : sizes.params) {
    use.weights += kFloatBytes * p.elements;
    if (p.trainable) use.gradients += kFloatBytes * p.elements;
  }
  use.buckets = use.gradients;
  use.optimizer = run.moments_per_parameter * use.gradients;
  use.buffers = buffer_bytes(sizes);
  use.average = average_bytes(sizes, run);
  return use;
}

MemoryUse memory_with_factors(Layer& model, const PlannedRun& run, Factor factor, bool cut, bool alternates) {
  const ModelSizes sizes(model, run.cut_ranks, true);
  const AbOptions& ab = *run.ab;
  MemoryUse use;
  use.buffers = buffer_bytes(sizes);
  use.average = average_bytes(sizes, run);
  for (const PlannedParam& p : sizes.params) {
    std::int64_t held = p.elements, trained = p.trainable ? p.elements : 0, exchanged = trained,
                 with_state = trained;
    if (p.weight) {
      const std::int64_t r = sizes.r(*p.weight, cut);
      held = sizes.factor_elements(*p.weight, Factor::a, r) + sizes.factor_elements(*p.weight, Factor::b, r);
      trained = with_state = sizes.factor_elements(*p.weight, factor, r);
      exchanged = ab.gradient_scope == GradientScope::group ? trained : 0;
      if (ab.moments == MomentCarry::truncate) with_state = p.elements + (alternates ? held : trained);
      if (ab.rest == Rest::keep) use.kept += kFloatBytes * p.elements;
      // The split's U, sigma and V; the frozen factor is one of them (Gauge::orthonormal).
      if (ab.sync == SyncMode::tangent) use.kept += kFloatBytes * (trained + r);
    }
    use.weights += kFloatBytes * held;
    use.gradients += kFloatBytes * trained;
    use.buckets += kFloatBytes * exchanged;
    use.optimizer += kFloatBytes * run.moments_per_parameter * with_state;
  }
  return use;
}

}  // namespace ab
