// SPDX-License-Identifier: MIT
#include "engine/plan/planned_run.h"

namespace ab {

void PlannedRun::check() const {
  constexpr std::int64_t kMostSteps = 1'000'000'000;
  AB_CHECK(world_size >= 1, "a run needs at least one rank, got {}", world_size);
  AB_CHECK(total_steps >= 1 && total_steps <= kMostSteps, "a run of {} steps cannot be planned; at most {} can",
           total_steps, kMostSteps);
  AB_CHECK(steps_per_epoch >= 1, "an epoch needs at least one step to be planned, got {}", steps_per_epoch);
}

}  // namespace ab
