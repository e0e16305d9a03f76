// SPDX-License-Identifier: MIT
#include "engine/sync/local.h"

#include "engine/sync/flat.h"

namespace ab {

LocalStrategy::LocalStrategy(Replica replica, Comm& world, const LocalOptions& options)
    : ReplicaStrategy(std::move(replica), world), options_(options) {
  AB_CHECK(options_.average_every >= 1, "local training averages every H >= 1 steps, got {}", options_.average_every);
}

void LocalStrategy::average() { all_reduce_flat(world(), replica().tensors(), ReduceOp::mean); }

void LocalStrategy::after_step(TrainState& state) {
  agree_ = averages_after(state.step);
  if (!agree_) return;
  world().ledger().set_phase(kAverage);
  average();
}

void LocalStrategy::begin_evaluation(TrainState&) {
  if (agree_) return;
  for (const Tensor& tensor : replica().tensors()) aside_.push_back(tensor.clone());
  average();
}

void LocalStrategy::end_evaluation(TrainState&) {
  const std::vector<Tensor> tensors = replica().tensors();
  for (std::size_t i = 0; i < aside_.size(); ++i) tensors[i].copy_from(aside_[i]);
  aside_.clear();
}

void LocalStrategy::finish(TrainState&) {
  if (agree_) return;
  world().ledger().set_phase(kAverage);
  average();
  agree_ = true;
}

void LocalStrategy::load(const StateDict&, TrainState& state) { agree_ = averages_after(state.step); }

}  // namespace ab
