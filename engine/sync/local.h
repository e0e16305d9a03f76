#pragma once
// SPDX-License-Identifier: MIT
//
// Local SGD and its kin (McMahan et al. 2017; Stich 2019): every rank trains its own replica with its own optimizer
// state, and at the end of every round of h updates the parameters are averaged over all ranks.
//   θ_i ← step of rank i's optimizer on its own gradient        θ_i ← mean over ranks of θ, when a round ends
// How long a round is depends on the step t at which it begins, and is fixed until it ends:
//   constant     h = H
//   post-local   h = 1 before step s, then H                                   (Lin et al. 2020)
//   QSR          h = max(H, ⌊(α/η)^p⌋), η the rate of update t + 1, p = 2      (Gu et al. 2024, arXiv 2310.14423)
// QSR keeps h = H while the rate warms up. The last round ends with the run: h ≤ T − t.
// In the hierarchical form ranks that share a node average their gradients in every step, so that they stay equal, and
// only the averages at the end of a round leave the node.
// Averages in 16 bits are those of changes since the last one (flat.h).
// Buffers are averaged with the parameters; moments stay with their rank. With H = 1 and SGD it is data-parallel
// training to rounding, as momentum and weight decay are linear. Gradients are clipped, and with float16 updates
// skipped, by each rank for itself (each node, in the hierarchical form). Rounds are a function of the schedule and of
// the step at which the first one begins, so a plan knows all of them.

#include <memory>
#include <optional>

#include "engine/optim/schedule.h"
#include "engine/sync/flat.h"
#include "engine/sync/gradient_buckets.h"
#include "engine/sync/node_layout.h"
#include "engine/sync/replica_strategy.h"

namespace ab {

struct LocalOptions {
  std::int64_t average_every = 4;     ///< H
  std::int64_t every_step_until = 0;  ///< s
  double qsr_alpha = 0;               ///< α, in the unit of a learning rate; 0: rounds do not depend on the rate
  double qsr_power = 2;               ///< p
  int node_size = 1;                  ///< ranks that average their gradients in every step

  bool operator==(const LocalOptions&) const = default;
};

/// h of the round that begins after `step` updates of a run of schedule.total_steps; at least 1.
std::int64_t round_length(const LocalOptions& options, const LrSchedule& schedule, std::int64_t step);

class LocalStrategy final : public ReplicaStrategy {
 public:
  static constexpr const char* kSteps = "local";  ///< phase of the updates
  /// Phase of the averages; where another method names the phase of its steps, they belong to that.
  static constexpr const char* kAverage = "average";

  /// `sync_bn`: who shares statistics of the replica's batch norms, all ranks or those of a node. `wire`: of the
  /// gradients inside a node.
  LocalStrategy(Replica replica, Comm& world, const LocalOptions& options, const LrSchedule& schedule,
                SyncBn sync_bn = SyncBn::world, const GradientWire& wire = {});

  std::string phase() const override { return kSteps; }
  void start(TrainState& state) override { begin_round(state.step); }
  void set_gradient_exchange(bool on) override;
  bool exchanges_in_backward() const override { return gradients_ && gradients_->leave_in_backward(); }
  void finish_grads(TrainState& state) override;
  void after_step(TrainState& state) override;
  std::int64_t step_kind(std::int64_t step) const override { return step + 1 == round_end_; }
  void pass(TrainState& state) override;
  void begin_evaluation(TrainState& state) override;
  void finish(TrainState& state) override;
  bool replicas_agree() const override { return agree_; }
  void save(StateDict& state) const override;
  void load(const StateDict& saved, TrainState& state) override;

 private:
  void enter_average();
  /// Parameters keep their places, so an average is no transition (SyncStrategy): a captured step stays good.
  void average();
  void begin_round(std::int64_t step) { round_end_ = step + round_length(options_, schedule_, step); }

  LocalOptions options_;
  LrSchedule schedule_;
  ParameterMean mean_;
  std::unique_ptr<Comm> node_;
  std::optional<GradientBuckets> gradients_;  // of the node; none where every rank is alone
  std::int64_t round_end_ = 0;
  bool agree_ = true;
};

}  // namespace ab
