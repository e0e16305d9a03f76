// SPDX-License-Identifier: MIT
#include "ablowrank/groups/join.h"

#include "ablowrank/moments.h"
#include "engine/kernels/elementwise.h"

namespace ab {

std::size_t WeightedSum::add(const Tensor& tensor, double weight) {
  terms_.push_back({tensor, weight});
  return terms_.size() - 1;
}

void WeightedSum::run(Comm& comm) {
  if (terms_.empty()) return;
  std::int64_t total = 0, offset = 0;
  for (const Term& term : terms_) total += term.tensor.numel();
  const Tensor flat({total}, DType::float32, terms_.front().tensor.device());
  for (const auto& [tensor, weight] : terms_) {
    const Tensor piece = flat.slice(offset, offset + tensor.numel()).view(tensor.shape());
    offset += tensor.numel();
    if (weight == 0) {
      piece.set_zero();
    } else {
      piece.copy_from(tensor);
      scale_in_place(piece, weight);
    }
    results_.push_back(piece);
  }
  comm.all_reduce(flat, ReduceOp::sum);
  for (Tensor& result : results_) result = result.clone();  // so that none keeps the whole buffer alive
}

namespace {

/// The weight of one rank's copy of a factor in the sum over the world.
double share(SyncMode mode, bool trained_here, int trainers, int world) {
  if (mode == SyncMode::with_stale) return 1.0 / world;
  return trained_here ? 1.0 / trainers : 0.0;
}

}  // namespace

Join::Join(const SplitWeight& split, const Tensor& outer, const Tensor& inner, SyncMode mode, const Trainers& trainers,
           WeightedSum& sum)
    : outer_(outer), inner_(inner), origin_(split.origin), mode_(mode) {
  if (mode == SyncMode::full) {
    dense_term_ = sum.add(product(outer, inner), 1.0 / trainers.world);
    return;
  }
  const bool transposed = split.weight->transposed();
  const int outer_trainers = trainers.of(transposed ? Factor::b : Factor::a);
  const int inner_trainers = trainers.of(transposed ? Factor::a : Factor::b);
  // A factor that nobody trained is still the same everywhere: nothing to send.
  if (outer_trainers > 0)
    outer_term_ = sum.add(outer, share(mode, split.weight->outer().trainable(), outer_trainers, trainers.world));
  if (inner_trainers > 0)
    inner_term_ = sum.add(inner, share(mode, split.weight->inner().trainable(), inner_trainers, trainers.world));
}

Tensor Join::dense(const WeightedSum& sum) const {
  if (mode_ == SyncMode::full) return sum.result(dense_term_);
  const Tensor outer = outer_term_ == kLocal ? outer_ : sum.result(outer_term_);
  const Tensor inner = inner_term_ == kLocal ? inner_ : sum.result(inner_term_);
  const bool both_trained = outer_term_ != kLocal && inner_term_ != kLocal;
  if (mode_ == SyncMode::tangent && both_trained) return lift_from_tangent(origin_.outer, origin_.inner, outer, inner);
  return product(outer, inner);
}

void carry_moments_to_factors(Weight& weight, MomentCarry carry, Optimizer& optimizer) {
  if (carry == MomentCarry::project) return project_moments(weight, optimizer);
  optimizer.resize(weight.a());
  optimizer.resize(weight.b());
}

bool moments_can_join(const AbOptions& options, const SplitWeight& split, Optimizer& optimizer) {
  Param& trained = split.weight->outer().trainable() ? split.weight->outer() : split.weight->inner();
  const ParamState& state = optimizer.state(trained);
  return options.moments == MomentCarry::project && options.sync == SyncMode::tangent && state.first_moment.defined() &&
         !state.second_moment.defined();
}

Join join_moments(const SplitWeight& split, const AbOptions& options, const Trainers& trainers, Optimizer& optimizer,
                  WeightedSum& sum) {
  Weight& weight = *split.weight;
  const bool train_outer = weight.outer().trainable();
  const auto moment = [&](Param& factor) {
    const Tensor& m = optimizer.state(factor).first_moment;
    return m.view({m.dim(0), -1});
  };
  // In the orthonormal gauge the frozen side of a lifted moment is the frozen factor itself.
  return Join(split, train_outer ? moment(weight.outer()) : split.origin.outer,
              train_outer ? split.origin.inner : moment(weight.inner()), options.sync, trainers, sum);
}

void carry_moments_to_dense(Weight& weight, MomentCarry carry, const Tensor& dense_moment, Optimizer& optimizer) {
  if (carry == MomentCarry::truncate) return;
  optimizer.reset(weight.a());
  optimizer.reset(weight.b());
  optimizer.reset(weight.dense());
  if (dense_moment.defined()) optimizer.state(weight.dense()).first_moment = dense_moment.view(weight.shape());
}

}  // namespace ab
