// SPDX-License-Identifier: MIT
#include "ablowrank/groups/phases.h"

#include <algorithm>

namespace ab {

const char* name_of(Phase phase) {
  switch (phase) {
    case Phase::warmup: return "warmup";
    case Phase::low_rank: return "low-rank";
    case Phase::rebound: return "rebound";
  }
  return "?";
}

Phase PhaseSchedule::phase_at(std::int64_t step) const {
  if (step < first_split) return Phase::warmup;
  if (release_order) {
    const std::int64_t last_sync = step / cycle_steps * cycle_steps;
    return last_sync > first_split && step - last_sync < full_rank_steps ? Phase::rebound : Phase::low_rank;
  }
  return (step - first_split) % cycle_steps < cycle_steps - full_rank_steps ? Phase::low_rank : Phase::rebound;
}

Transition PhaseSchedule::transition_at(std::int64_t step) const {
  if (step < first_split) return Transition::none;
  if (step == first_split) return cut_at_warmup ? Transition::split : Transition::split_uncut;
  if (release_order) {
    if (step % cycle_steps == 0) return Transition::sync;
    if (step <= cycle_steps || step % cycle_steps != full_rank_steps) return Transition::none;
    return phase_at(step - 1) == Phase::rebound ? Transition::split : Transition::restart_rebound;
  }
  const std::int64_t position = (step - first_split) % cycle_steps;
  if (position == 0) return Transition::split;
  return position == cycle_steps - full_rank_steps ? Transition::sync : Transition::none;
}

std::int64_t PhaseSchedule::last_transition(std::int64_t step) const {
  if (step < first_split) return -1;
  if (!release_order) {
    const std::int64_t position = (step - first_split) % cycle_steps;
    const std::int64_t sync = cycle_steps - full_rank_steps;
    return step - (position < sync ? position : position - sync);
  }
  // A cycle of the release has its sync at a multiple of S and its split D steps later; the newest comes first.
  const std::int64_t cycle = step / cycle_steps * cycle_steps;
  for (std::int64_t t : {cycle + full_rank_steps, cycle, cycle - cycle_steps + full_rank_steps, first_split})
    if (t >= first_split && t <= step && transition_at(t) != Transition::none) return t;
  return first_split;
}

double rebound_learning_rate(const PhaseSchedule& schedule, double scheduled, double scheduled_at_transition,
                             std::int64_t step) {
  const std::int64_t transition = schedule.last_transition(step);
  if (transition < 0 || schedule.rebound_steps == 0) return scheduled;
  const std::int64_t k = step - transition + 1;
  if (schedule.release_order) {
    constexpr double kFloor = 1e-5;
    if (k > schedule.rebound_steps || scheduled_at_transition <= kFloor) return scheduled;
    const double slope = (scheduled_at_transition - kFloor) / static_cast<double>(schedule.rebound_steps);
    return std::min(scheduled, k == 1 ? std::min(kFloor, slope) : static_cast<double>(k) * slope);
  }
  const bool full_rank = schedule.phase_at(step) == Phase::rebound;
  const std::int64_t phase_length =
      full_rank ? schedule.full_rank_steps : schedule.cycle_steps - schedule.full_rank_steps;
  const std::int64_t ramp = std::min(schedule.rebound_steps, phase_length);
  return k >= ramp ? scheduled : scheduled * static_cast<double>(k) / static_cast<double>(ramp);
}

}  // namespace ab
