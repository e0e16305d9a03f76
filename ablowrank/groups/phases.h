#pragma once
// SPDX-License-Identifier: MIT
//
// When AB-training splits, synchronises and rebounds: pure functions of the number of updates done, the same
// for training, for planning and for tests.
//
// Our order: W warm-up steps, then cycles of S steps: S − D with factors, D at full rank.
//   split at W + k·S,   sync at W + k·S + (S − D)
// The order of the authors' release counts S from step 0 (after every update t, first match wins):
//   t = W: split without a cut;   t mod S = 0: sync;   t > S and t mod S = D: split

#include <cstdint>

namespace ab {

enum class Phase { warmup, low_rank, rebound };

/// "warmup", "low-rank", "rebound": as in metrics and in the ledger.
const char* name_of(Phase phase);

enum class Transition {
  none,
  split,            ///< decompose and cut to the rank that the policy chooses
  split_uncut,      ///< decompose at full rank
  sync,             ///< rejoin the factors and rebuild W
  restart_rebound,  ///< release order only: the rate drops once more although nothing else happens
};

struct PhaseSchedule {
  std::int64_t first_split = 400;     ///< W >= 0
  std::int64_t cycle_steps = 100;     ///< S
  std::int64_t full_rank_steps = 20;  ///< D, 1 <= D < S
  std::int64_t rebound_steps = 0;     ///< R >= 0: length of the ramp of the rate after a transition
  bool cut_at_warmup = true;          ///< the first split cuts ranks too
  bool release_order = false;         ///< the order of the authors' release

  bool operator==(const PhaseSchedule&) const = default;
  /// The phase of the update that follows `step` updates.
  Phase phase_at(std::int64_t step) const;
  /// What happens once `step` updates are done (0: before the first).
  Transition transition_at(std::int64_t step) const;
  /// The step of the latest transition at or before `step`, or -1.
  std::int64_t last_transition(std::int64_t step) const;
};

/// The rate of the update after `step` updates, given the scheduled rate now and at the last transition.
/// Ours rises linearly to the scheduled rate over min(R, length of the phase) updates; the release's rises as
/// k · (eta0 − 1e-5) / R, k = 1, 2, …, R, and starts with at most 1e-5; where the schedule is below 1e-5 already
/// there is nothing to ramp up to.
double rebound_learning_rate(const PhaseSchedule& schedule, double scheduled, double scheduled_at_transition,
                             std::int64_t step);

}  // namespace ab
