#pragma once
// SPDX-License-Identifier: MIT
//
// AB-training (Coquelin et al., arXiv 2405.01067) as a synchronisation strategy. After a full-rank warm-up
// every weight W is split into A·B; groups of ranks train A only or B only and exchange gradients among
// themselves; then the factors are rejoined over all ranks, W is rebuilt and trained briefly at full rank
// (rebound), and split again.
//
//   phases.h       when: a pure function of the step
//   groups.h       who trains what
//   split.h        W -> A, B         join.h  A, B -> W, and optimizer state both ways
//   factorise.h    how many directions are kept

#include <memory>

#include "ablowrank/groups/groups.h"
#include "ablowrank/groups/join.h"
#include "ablowrank/groups/options.h"
#include "engine/comm/comm.h"
#include "engine/optim/schedule.h"
#include "engine/sync/gradient_buckets.h"
#include "engine/sync/sync_strategy.h"
#include "layers/layer.h"

namespace ab {

/// Gives the parameters of these names the role always_sync, and all others theirs of a model without such a list; does
/// nothing for an empty list. Throws Error(config) for a name that the model lacks.
void keep_at_full_rank(const std::vector<std::string>& names, Layer& model);

class AbStrategy final : public SyncStrategy {
 public:
  /// Collective over `world`. `schedule` is the run's learning-rate schedule, which the rebound starts from.
  AbStrategy(Layer& model, Comm& world, const AbOptions& options, const LrSchedule& schedule);

  void start(TrainState& state) override;
  std::string phase() const override { return name_of(phase_); }
  double learning_rate(double scheduled, std::int64_t step) const override;
  void set_gradient_exchange(bool on) override;
  bool exchanges_in_backward() const override { return buckets_ && buckets_->leave_in_backward(); }
  void finish_grads(TrainState& state) override;
  bool has_transition(std::int64_t step) const override;
  void after_step(TrainState& state) override;
  std::string role(int rank) const override;
  void begin_evaluation(TrainState& state) override;
  void end_evaluation(TrainState& state) override;
  void finish(TrainState& state) override;
  void leave(TrainState& state) override;
  bool replicas_agree() const override { return phase_ != Phase::low_rank; }
  void save(StateDict& state) const override;
  void load(const StateDict& saved, TrainState& state) override;

 private:
  Transition transition_at(std::int64_t step) const;
  void split(TrainState& state, bool cut);
  void sync(TrainState& state);
  void enter(Phase phase, TrainState& state);
  void average_buffers();
  std::vector<Tensor> shared_values() const;
  Trainers trainers() const;
  Factor trained_factor() const;

  Layer& model_;
  Comm& world_;
  AbOptions options_;
  LrSchedule schedule_;
  std::vector<RankGroup> groups_;
  std::unique_ptr<Comm> group_;
  std::unique_ptr<BatchNormSync> batch_norms_;

  Phase phase_ = Phase::warmup;
  std::int64_t cycle_ = -1;  // number of splits so far, less one
  std::vector<SplitWeight> splits_;
  std::unique_ptr<GradientBuckets> buckets_;

  /// This rank's own state, kept while the joined one is evaluated in a low-rank phase.
  struct TrainedState {
    std::vector<FactorPair> factors;
    std::vector<Tensor> rests;
    std::vector<Tensor> shared;
  };
  TrainedState trained_;
};

}  // namespace ab
