#pragma once
// SPDX-License-Identifier: MIT
//
// How often each thing happens in a run: the schedule of phases.h, walked from transition to transition
// instead of from step to step.

#include <cstdint>
#include <vector>

#include "ablowrank/groups/phases.h"
#include "engine/plan/planned_run.h"

namespace ab {

/// The low-rank phases that look alike: factors of the same rank r, the same factor in training.
struct LowRankStage {
  int split = 0;     ///< whose ranks the factors have: AbSizes::r()
  bool odd = false;  ///< cycles 1, 3, 5, …, in which a group that alternates trains its other factor
  std::int64_t splits = 0;
  StepCount steps{};
  std::int64_t evaluations = 0;  ///< validations within, the one at the end of the run left out
  std::int64_t syncs = 0;        ///< scheduled ones, the one that ends the run left out
};

struct Timetable {
  StepCount warmup{}, rebound{};
  std::int64_t full_rank_evaluations = 0;  ///< validations of a dense model, the one at the end left out
  std::vector<LowRankStage> low_rank{};
  int last_stage = -1;  ///< the stage in which the run ends; -1: it ends at full rank
};

/// `last_split`: splits from that number on have the same ranks (AbSizes::last_split()). Throws Error(config) for a run that
/// cannot be planned (PlannedRun::check).
Timetable make_timetable(const PhaseSchedule& schedule, const PlannedRun& run, int last_split = 0);

}  // namespace ab
