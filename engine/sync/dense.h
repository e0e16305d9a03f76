#pragma once
// SPDX-License-Identifier: MIT
//
// Ordinary data-parallel training: in every step the gradients are averaged over all ranks, so all ranks hold
// one and the same full-rank model throughout.

#include "engine/sync/gradient_buckets.h"
#include "engine/sync/replica_strategy.h"

namespace ab {

class DenseStrategy final : public ReplicaStrategy {
 public:
  static constexpr const char* kPhase = "full";

  DenseStrategy(Replica model, Comm& comm, const GradientWire& wire = {})
      : ReplicaStrategy(std::move(model), comm), gradients_(replica().params, world(), ReduceOp::mean, wire) {}

  std::string phase() const override { return kPhase; }
  void set_gradient_exchange(bool on) override { gradients_.set_exchange(on); }
  bool exchanges_in_backward() const override { return gradients_.leave_in_backward(); }
  void start(TrainState& state) override { gradients_.set_step(state.step); }
  void finish_grads(TrainState& /*state*/) override { gradients_.finish(); }
  void after_step(TrainState& state) override { gradients_.set_step(state.step); }
  void load(const StateDict& /*saved*/, TrainState& state) override { gradients_.set_step(state.step); }

 private:
  GradientBuckets gradients_;
};

}  // namespace ab
