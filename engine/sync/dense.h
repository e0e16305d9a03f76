#pragma once
// SPDX-License-Identifier: MIT
//
// Ordinary data-parallel training: in every step the gradients are averaged over all ranks, so all ranks hold
// one and the same full-rank model throughout.

#include "engine/sync/replica_strategy.h"

namespace ab {

class DenseStrategy final : public ReplicaStrategy {
 public:
  static constexpr const char* kPhase = "full";

  DenseStrategy(Replica model, Comm& comm, const GradientWire& wire = {}) : ReplicaStrategy(std::move(model), comm) {
    buckets_ = std::make_unique<GradientBuckets>(replica().params, world(), ReduceOp::mean, wire);
  }

  std::string phase() const override { return kPhase; }
  void start(TrainState& state) override { buckets_->set_step(state.step); }
  void after_step(TrainState& state) override { buckets_->set_step(state.step); }
  void load(const StateDict& /*saved*/, TrainState& state) override { buckets_->set_step(state.step); }
};

}  // namespace ab
