// SPDX-License-Identifier: MIT
#include "ablowrank/timetable.h"

#include <algorithm>

#include "ablowrank/ab_sizes.h"

namespace ab {
namespace {

/// The run so far, as a state machine of its transitions.
class Walk {
 public:
  Walk(const PhaseSchedule& schedule, int last_split, Timetable& table)
      : schedule_(schedule), last_split_(last_split), table_(table) {}

  std::int64_t next_transition(std::int64_t step) const { return schedule_.next_transition(step); }

  void transition(std::int64_t step) {
    switch (schedule_.transition_at(step)) {
      case Transition::none:
      case Transition::restart_rebound: return;
      case Transition::split: return split(true);
      case Transition::split_uncut: return split(false);
      case Transition::sync: ++stage().syncs; table_.last_stage = -1;
    }
  }

  void steps(const StepCount& more) {
    StepCount& count = table_.last_stage >= 0 ? stage().steps : splits_ == 0 ? table_.warmup : table_.rebound;
    count.steps += more.steps;
    count.last_of_epoch += more.last_of_epoch;
  }

  void evaluate(std::int64_t) { ++(table_.last_stage >= 0 ? stage().evaluations : table_.full_rank_evaluations); }

 private:
  LowRankStage& stage() { return table_.low_rank[static_cast<std::size_t>(table_.last_stage)]; }

  void split(bool cut) {
    const bool odd = splits_ % 2 != 0;
    const int number = cut ? static_cast<int>(std::min<std::int64_t>(splits_, last_split_)) : AbSizes::kUncut;
    ++splits_;
    auto& stages = table_.low_rank;
    auto at = std::find_if(stages.begin(), stages.end(),
                           [&](const LowRankStage& s) { return s.split == number && s.odd == odd; });
    if (at == stages.end()) at = stages.insert(at, {.split = number, .odd = odd});
    ++at->splits;
    table_.last_stage = static_cast<int>(at - stages.begin());
  }

  const PhaseSchedule& schedule_;
  int last_split_;
  Timetable& table_;
  std::int64_t splits_ = 0;
};

}  // namespace

Timetable make_timetable(const PhaseSchedule& schedule, const PlannedRun& run, int last_split) {
  Timetable table;
  Walk visitor(schedule, last_split, table);
  walk(run, visitor);
  return table;
}

}  // namespace ab
