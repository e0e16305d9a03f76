#pragma once
// SPDX-License-Identifier: MIT
//
// How often each thing happens in a run: the schedule of phases.h, walked from transition to transition
// instead of from step to step. Validations take place after every `eval_every` epochs and at the end.

#include <cstdint>
#include <vector>

#include "ablowrank/phases.h"

namespace ab {

/// Steps of one kind, and how many of them are the last of their epoch (whose window of micro-batches may be
/// smaller).
struct StepCount {
  std::int64_t steps = 0, last_of_epoch = 0;
  bool operator==(const StepCount&) const = default;
};

/// The low-rank phases that look alike: factors of the same rank r, the same factor in training.
struct LowRankStage {
  bool cut = true;   ///< false after a split at full rank
  bool odd = false;  ///< cycles 1, 3, 5, …, in which a group that alternates trains its other factor
  std::int64_t splits = 0;
  StepCount steps{};
  std::int64_t evaluations = 0;  ///< validations within, the one at the end of the run left out
  std::int64_t syncs = 0;        ///< scheduled ones, the one that ends the run left out
};

struct Timetable {
  std::int64_t total_steps = 0, epochs = 0;
  StepCount warmup{}, rebound{};
  std::int64_t full_rank_evaluations = 0;  ///< validations of a dense model, the one at the end left out
  std::vector<LowRankStage> low_rank{};
  int last_stage = -1;               ///< the stage in which the run ends; -1: it ends at full rank
  std::int64_t evaluations() const;  ///< all of them
};

/// `schedule` nullptr: dense training, which is a warm-up without end. eval_every 0: only at the end.
/// Throws Error(config) for a run that is too long to be walked (more than 10⁹ steps).
Timetable make_timetable(const PhaseSchedule* schedule, std::int64_t total_steps,
                         std::int64_t steps_per_epoch, std::int64_t eval_every);

}  // namespace ab
