#pragma once
// SPDX-License-Identifier: MIT
//
// The late cut: training at full rank by any method that averages gradients, or parameters now and then; then a cut
// (cut.h), of replicas that are made equal for it, after which all ranks train A and B of every weight, by any such
// method again, which begins anew: what it has kept of gradients of the weights (residuals) is dropped. A later cut
// takes more; what the optimizer knows of factors goes to those that take their place (moments.h).
//
//   cut_schedule.h  when    loss_metric.h  sensitivity of a direction    loss_ranks.h  ranks from that
// Full rank first, factors later, both trained: Pufferfish (Wang et al., MLSys 2021), Cuttlefish (Wang et al. 2023,
// arXiv 2305.02538).

#include <functional>
#include <memory>
#include <string>

#include "ablowrank/cut.h"
#include "ablowrank/cut_schedule.h"
#include "engine/sync/replica_strategy.h"

namespace ab {

class LateCutStrategy final : public SyncStrategy {
 public:
  /// Trains a replica on the world.
  using Average = std::function<std::unique_ptr<SyncStrategy>(Replica replica)>;

  /// `full_rank`: trains until the first cut, and has given all ranks the same model. `low_rank` makes what trains
  /// factors.
  LateCutStrategy(Layer& model, Comm& world, const LateCutOptions& options, CutSchedule schedule,
                  std::unique_ptr<SyncStrategy> full_rank, Average low_rank);

  /// The phase of the steps after cut number `index`, of `cuts`.
  static std::string phase_name(std::size_t index, std::size_t cuts);

  void start(TrainState& state) override;
  std::string phase() const override;
  double learning_rate(double scheduled, std::int64_t step) const override;
  void set_gradient_exchange(bool on) override { now_->set_gradient_exchange(on); }
  bool exchanges_in_backward() const override { return now_->exchanges_in_backward(); }
  void finish_grads(TrainState& state) override { now_->finish_grads(state); }
  bool has_transition(std::int64_t step) const override;
  void after_step(TrainState& state) override;
  std::int64_t step_kind(std::int64_t step) const override { return now_->step_kind(step); }
  void pass(TrainState& state) override { now_->pass(state); }
  std::string role(int rank) const override { return now_->role(rank); }
  bool follows_epochs() const override { return now_->follows_epochs(); }
  void on_epoch_end(TrainState& state, double mean_loss) override { now_->on_epoch_end(state, mean_loss); }
  std::map<std::string, std::int64_t> decision() const override { return now_->decision(); }
  bool replicas_agree() const override { return now_->replicas_agree(); }
  void begin_evaluation(TrainState& state) override { now_->begin_evaluation(state); }
  void end_evaluation(TrainState& state) override { now_->end_evaluation(state); }
  void finish(TrainState& state) override { now_->finish(state); }
  void leave(TrainState& state) override { now_->leave(state); }
  void save(StateDict& state) const override;
  void load(const StateDict& saved, TrainState& state) override;

 private:
  void cut(std::size_t index, TrainState& state);
  void train_factors(TrainState& state);
  void observe(std::int64_t step);

  Layer& model_;
  Comm& world_;
  LateCutOptions options_;
  CutSchedule schedule_;
  std::unique_ptr<SyncStrategy> now_;
  Average low_rank_;
  std::size_t cuts_ = 0;  // so far
  std::unique_ptr<CutObservers> observers_;
};

}  // namespace ab
