#pragma once
// SPDX-License-Identifier: MIT
//
// What a rank holds in memory from step to step, by kind. Activations are not counted (apps/plan/activations.h measures
// them), nor are the passing needs of a decomposition.

#include <string>

#include "engine/plan/model_sizes.h"
#include "engine/plan/planned_run.h"

namespace ab {

/// Bytes.
struct MemoryUse {
  std::int64_t weights = 0;    ///< parameters, as they are in this phase
  std::int64_t gradients = 0;  ///< of the trained ones, as backward returns them
  std::int64_t buckets = 0;    ///< the flat copies that travel; a rank alone has none of whole gradients
  std::int64_t optimizer = 0;  ///< moments, those that sleep included
  std::int64_t buffers = 0;    ///< running statistics
  std::int64_t kept = 0;       ///< what the method keeps beside: residuals, the rest of a cut
  std::int64_t average = 0;    ///< the dense model of averaged weights, its running statistics included
  std::int64_t total() const { return weights + gradients + buckets + optimizer + buffers + kept + average; }
};

struct MemoryRow {
  std::string when;  ///< "full rank", "low-rank, A", …
  MemoryUse use;
};

/// Buckets of gradients, of which float32 takes `bytes`: what travels is a copy of its own if it has 16 bits.
constexpr std::int64_t bucket_memory(std::int64_t bytes, DType wire) {
  return wire == DType::float32 ? bytes : bytes + bytes / 4 * static_cast<std::int64_t>(size_of(wire));
}

/// What no method changes: buffers and averaged weights.
MemoryUse memory_of_no_method(const ModelSizes& sizes, const PlannedRun& run);
/// In training at full rank with averaged gradients.
MemoryUse memory_at_full_rank(const ModelSizes& sizes, const PlannedRun& run);

}  // namespace ab
