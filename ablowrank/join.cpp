// SPDX-License-Identifier: MIT
#include "ablowrank/join.h"

namespace ab {
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
    dense_term_ = sum.add(fold(outer, inner), 1.0 / trainers.world);
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
  if (mode_ == SyncMode::tangent && both_trained)
    return lift_from_tangent(origin_.outer, origin_.inner, outer, inner);
  return fold(outer, inner);
}

}  // namespace ab
