#pragma once
// SPDX-License-Identifier: MIT
//
// What AB-training with both factors sends and holds (both_strategy.h): the plan of the method that trains at full rank, up
// to the first cut, and from there what cut.h and data-parallel steps exchange.

#include "ablowrank/ab_sizes.h"
#include "ablowrank/cut_schedule.h"
#include "engine/plan/method_plan.h"

namespace ab {

/// The part of `run` up to the first cut, for the plan of the method that trains it; all of it when there is none.
PlannedRun full_rank_part(const PlannedRun& run, const CutSchedule& schedule);

/// `model` is dense. `ranks`: of every eligible weight after each cut, n for one that stays dense; `at_most`: or of which
/// nothing is known. `full_rank`: the plan of full_rank_part().
MethodPlan plan_both(Layer& model, const AbOptions& options, const CutSchedule& schedule,
                     const std::vector<std::vector<std::int64_t>>& ranks, bool at_most, MethodPlan full_rank,
                     const PlannedRun& run);

}  // namespace ab
