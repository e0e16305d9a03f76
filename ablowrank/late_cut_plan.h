#pragma once
// SPDX-License-Identifier: MIT
//
// What the late cut sends and holds (late_cut.h): the plan of the method that trains at full rank, up
// to the first cut; what a cut exchanges (cut.h); and from there the plan of the method that trains the factors.

#include <functional>

#include "ablowrank/ab_sizes.h"
#include "ablowrank/cut_schedule.h"
#include "engine/plan/method_plan.h"

namespace ab {

/// The plans of part of a run (RunPart), with the model as it is in that part. All ranks do the same in them.
struct LateCutPlanners {
  std::function<MethodPlan(Layer&model, const PlannedRun&part)> full_rank, low_rank;
};

/// `model` is dense, before and after. `ranks`: of every eligible weight after each cut, n for one that stays dense; `at_most`: or of which
/// nothing is known.
MethodPlan plan_late_cut(Layer& model, const CutSchedule& schedule, const std::vector<std::vector<std::int64_t>>& ranks,
                         bool at_most, const LateCutPlanners& planners, const PlannedRun& run);

}  // namespace ab
