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

#include <cmath>

#include "engine/optim/schedule.h"
#include "engine/sync/flat.h"
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
inline std::int64_t round_length(const LocalOptions& options, const LrSchedule& schedule, std::int64_t step) {
  const std::int64_t left = std::max<std::int64_t>(1, schedule.total_steps - step);
  if (step < options.every_step_until) return 1;
  std::int64_t length = options.average_every;
  if (options.qsr_alpha > 0 && step >= schedule.warmup_steps) {
    // A rate that falls to zero makes this infinite, so it becomes an integer only when it is known to be small.
    const double by_rate = std::pow(options.qsr_alpha / schedule.at(step), options.qsr_power);
    if (!(by_rate < static_cast<double>(left))) return left;
    length = std::max(length, static_cast<std::int64_t>(by_rate));
  }
  return std::min(length, left);
}

class LocalStrategy final : public ReplicaStrategy {
 public:
  static constexpr const char* kSteps = "local";  ///< phase of the updates
  /// Phase of the averages; where another method names the phase of its steps, they belong to that.
  static constexpr const char* kAverage = "average";

  /// `sync_bn`: who shares statistics of the replica's batch norms, all ranks or those of a node. `wire`: of the
  /// gradients inside a node.
  LocalStrategy(Replica replica, Comm& world, const LocalOptions& options, const LrSchedule& schedule,
                SyncBn sync_bn = SyncBn::world, const GradientWire& wire = {})
      : ReplicaStrategy(std::move(replica), world, sync_bn,
                        [node = std::max(1, options.node_size)](int rank) { return rank / node; }),
        options_(options),
        schedule_(schedule),
        mean_(this->replica().values(), wire.dtype) {
    AB_CHECK(options_.average_every >= 1, "local training averages every H >= 1 steps, got {}", options_.average_every);
    if (options_.node_size == 1) return;
    node_ = split_nodes(world, {world.size(), options_.node_size});
    buckets_ = std::make_unique<GradientBuckets>(this->replica().params, *node_, ReduceOp::mean, wire);
  }

  std::string phase() const override { return kSteps; }
  void start(TrainState& state) override { begin_round(state.step); }

  void after_step(TrainState& state) override {
    agree_ = state.step == round_end_;
    if (!agree_) return;
    enter_average();
    average();
    mean_.agree();
    begin_round(state.step);
  }

  std::int64_t step_kind(std::int64_t step) const override { return step + 1 == round_end_; }
  void pass(TrainState& state) override {
    agree_ = state.step == round_end_;
    if (agree_) begin_round(state.step);
  }
  void begin_evaluation(TrainState& /*state*/) override {
    if (agree_) return;
    set_aside();
    average();
  }
  void finish(TrainState& /*state*/) override {
    if (agree_) return;
    enter_average();
    average();
    agree_ = true;
  }
  bool replicas_agree() const override { return agree_; }
  void save(StateDict& state) const override {
    state.put("local.round_end", round_end_);
    state.put("local.agree", std::int64_t{agree_});
    if (mean_.in_16_bits()) state.put("local.reference", mean_.reference());
  }
  void load(const StateDict& saved, TrainState& /*state*/) override {
    if (mean_.in_16_bits()) mean_.reference().copy_from(saved.tensor("local.reference"));
    round_end_ = saved.integer("local.round_end");
    agree_ = saved.integer("local.agree") != 0;
  }

 private:
  void enter_average() {
    if (world().ledger().phase() == kSteps) world().ledger().set_phase(kAverage);
  }
  /// Parameters keep their places, so an average is no transition (SyncStrategy): a captured step stays good.
  void average() {
    if (!mean_.in_16_bits()) return all_reduce_flat(world(), replica().tensors(), ReduceOp::mean);
    scatter_parts(mean_.over(world()), mean_.params());
    average_buffers();
  }
  void begin_round(std::int64_t step) { round_end_ = step + round_length(options_, schedule_, step); }

  LocalOptions options_;
  LrSchedule schedule_;
  ParameterMean mean_;
  std::int64_t round_end_ = 0;
  bool agree_ = true;
};

}  // namespace ab
