#pragma once
// SPDX-License-Identifier: MIT
//
// What AB-training sends and holds, before it is trained: its schedule goes through the same Ledger with the same
// collectives that AbStrategy would call, each with the number of times it happens (engine/plan/traffic_plan.h). Ranks
// whose groups have the same size, factor and share of links between nodes send alike and are counted once.
//
//   every step   the gradient buckets, over the world or, in a low-rank phase, over the group
//   split        the ranks r (an all-reduce), the factors (a broadcast from each rank that decomposed some)
//   sync         one weighted sum (join.h), a replica check
//   evaluation   buffers averaged, or in a low-rank phase the weighted sum of a sync
//   at the end   the same as a sync and, for FinalModel::factors, a split; at full rank the buffers

#include "ablowrank/ab_sizes.h"
#include "ablowrank/groups/options.h"
#include "ablowrank/timetable.h"
#include "engine/plan/method_plan.h"

namespace ab {

/// Throws Error(config) when the settings do not fit each other, the world or the model.
TrafficPlan plan_ab_traffic(const AbSizes& sizes, const AbOptions& options, const PlannedRun& run);

/// In a low-rank phase after that split (AbSizes::r()), for a rank that trains `factor`; `alternates`: and trained the other one
/// the cycle before.
MemoryUse memory_with_factors(const AbSizes& sizes, const AbOptions& options, const PlannedRun& run, Factor factor,
                              int split, bool alternates);

/// `model` is dense.
MethodPlan plan_ab(Layer& model, const AbOptions& options, CutRanks cut, const PlannedRun& run);

}  // namespace ab
