#pragma once
// SPDX-License-Identifier: MIT
//
// Local SGD and its kin (McMahan et al. 2017; Stich 2019; with a constant H, Lin et al. 2020): every rank trains its
// own replica with its own optimizer state, and after every H updates the parameters are averaged over all ranks.
//   θ_i ← step of rank i's optimizer on its own gradient        θ_i ← mean over ranks of θ, when t mod H = 0
// Buffers are averaged with the parameters; moments stay with their rank. With H = 1 and SGD it is data-parallel
// training to rounding, as momentum and weight decay are linear. Gradients are clipped, and with float16 updates
// skipped, by each rank for itself.

#include "engine/sync/replica_strategy.h"

namespace ab {

struct LocalOptions {
  std::int64_t average_every = 4;  ///< H

  bool operator==(const LocalOptions&) const = default;
};

class LocalStrategy final : public ReplicaStrategy {
 public:
  static constexpr const char* kSteps = "local";      ///< phase of the updates
  static constexpr const char* kAverage = "average";  ///< phase of the averages

  LocalStrategy(Replica replica, Comm& world, const LocalOptions& options);

  std::string phase() const override { return kSteps; }
  void set_gradient_exchange(bool /*on*/) override {}
  void finish_grads(TrainState& /*state*/) override {}
  void after_step(TrainState& state) override;
  void begin_evaluation(TrainState& state) override;
  void end_evaluation(TrainState& state) override;
  void finish(TrainState& state) override;
  bool replicas_agree() const override { return agree_; }
  void load(const StateDict& saved, TrainState& state) override;

 private:
  /// No transition (SyncStrategy): parameters keep their places, so a captured step stays good.
  bool averages_after(std::int64_t step) const { return step % options_.average_every == 0; }
  void average();

  LocalOptions options_;
  bool agree_ = true;
  std::vector<Tensor> aside_;  // this rank's own replica while the average is evaluated
};

}  // namespace ab
