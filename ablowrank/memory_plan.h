#pragma once
// SPDX-License-Identifier: MIT
//
// What a rank holds in memory from step to step, by kind, at full rank and while factors train. Activations
// are not counted (they depend on the batch and on how layers execute), nor are the passing needs of a
// decomposition.

#include "ablowrank/model_sizes.h"
#include "ablowrank/traffic_plan.h"

namespace ab {

/// Bytes.
struct MemoryUse {
  std::int64_t weights = 0;    ///< parameters, as they are in this phase
  std::int64_t gradients = 0;  ///< of the trained ones, as backward returns them
  std::int64_t buckets = 0;    ///< the flat copies that travel
  std::int64_t optimizer = 0;  ///< moments, those that sleep included (MomentCarry::truncate)
  std::int64_t buffers = 0;    ///< running statistics
  std::int64_t kept = 0;  ///< the rest of the cut (Rest::keep), the split's own factors (SyncMode::tangent)
  std::int64_t average = 0;  ///< the dense model of averaged weights, its running statistics included
  std::int64_t total() const { return weights + gradients + buckets + optimizer + buffers + kept + average; }
};

/// In training at full rank before the first split, and for dense training.
MemoryUse memory_at_full_rank(Layer& model, const PlannedRun& run);
/// In a low-rank phase, for a rank that trains `factor`; `alternates`: and trained the other one the cycle
/// before.
MemoryUse memory_with_factors(Layer& model, const PlannedRun& run, Factor factor, bool cut, bool alternates);

}  // namespace ab
