// SPDX-License-Identifier: MIT
#include "ablowrank/timetable.h"

#include <algorithm>

#include "engine/core/check.h"

namespace ab {
namespace {

constexpr std::int64_t kMostSteps = 1'000'000'000;

/// The run so far, as a state machine of its transitions.
class Walk {
 public:
  explicit Walk(Timetable& table) : table_(table) {}

  void take(Transition transition) {
    switch (transition) {
      case Transition::none:
      case Transition::restart_rebound: return;
      case Transition::split: return split(true);
      case Transition::split_uncut: return split(false);
      case Transition::sync: ++stage().syncs; table_.last_stage = -1;
    }
  }

  void run_steps(const StepCount& more) {
    StepCount& count = table_.last_stage >= 0 ? stage().steps : splits_ == 0 ? table_.warmup : table_.rebound;
    count.steps += more.steps;
    count.last_of_epoch += more.last_of_epoch;
  }

  void evaluate() { ++(table_.last_stage >= 0 ? stage().evaluations : table_.full_rank_evaluations); }

 private:
  LowRankStage& stage() { return table_.low_rank[static_cast<std::size_t>(table_.last_stage)]; }

  void split(bool cut) {
    const bool odd = splits_++ % 2 != 0;
    auto& stages = table_.low_rank;
    auto at = std::find_if(stages.begin(), stages.end(),
                           [&](const LowRankStage& s) { return s.cut == cut && s.odd == odd; });
    if (at == stages.end()) at = stages.insert(at, {.cut = cut, .odd = odd});
    ++at->splits;
    table_.last_stage = static_cast<int>(at - stages.begin());
  }

  Timetable& table_;
  std::int64_t splits_ = 0;
};

}  // namespace

std::int64_t Timetable::evaluations() const {
  std::int64_t count = full_rank_evaluations + 1;
  for (const LowRankStage& stage : low_rank) count += stage.evaluations;
  return count;
}

Timetable make_timetable(const PhaseSchedule* schedule, std::int64_t total_steps,
                         std::int64_t steps_per_epoch, std::int64_t eval_every) {
  AB_CHECK(total_steps >= 1 && total_steps <= kMostSteps,
           "a run of {} steps cannot be planned; at most {} can", total_steps, kMostSteps);
  AB_CHECK(steps_per_epoch >= 1, "an epoch needs at least one step to be planned, got {}", steps_per_epoch);
  Timetable table{.total_steps = total_steps,
                  .epochs = (total_steps + steps_per_epoch - 1) / steps_per_epoch};
  Walk walk(table);
  if (schedule) walk.take(schedule->transition_at(0));
  const std::int64_t period =
      eval_every > 0 ? std::min(eval_every, table.epochs) * steps_per_epoch : total_steps;
  for (std::int64_t step = 0; step < total_steps;) {
    std::int64_t next = std::min(total_steps, (step / period + 1) * period);
    if (schedule) next = std::min(next, schedule->next_transition(step));
    walk.run_steps({next - step, next / steps_per_epoch - step / steps_per_epoch});
    step = next;
    if (schedule) walk.take(schedule->transition_at(step));
    if (step < total_steps && step % period == 0) walk.evaluate();
  }
  return table;
}

}  // namespace ab
