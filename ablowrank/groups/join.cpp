// SPDX-License-Identifier: MIT
#include "ablowrank/groups/join.h"

namespace ab {
namespace {

/// The weight of one rank's copy of a factor in the sum over the world.
double share(SyncMode mode, bool trained_here, int trainers, int world) {
  if (mode == SyncMode::with_stale) return 1.0 / world;
  return trained_here ? 1.0 / trainers : 0.0;
}

}  // namespace

JoinTerms join_terms(SyncMode mode, const Trainers& trainers, bool transposed) {
  if (mode == SyncMode::full) return {.dense = true};
  // A factor that nobody trained is still the same everywhere: nothing to send.
  return {.outer = trainers.of(transposed ? Factor::b : Factor::a) > 0,
          .inner = trainers.of(transposed ? Factor::a : Factor::b) > 0};
}

Join::Join(const SplitWeight& split, const Tensor& outer, const Tensor& inner, SyncMode mode, const Trainers& trainers,
           WeightedSum& sum)
    : outer_(outer), inner_(inner), origin_(split.origin), mode_(mode) {
  const bool transposed = split.weight->transposed();
  const JoinTerms terms = join_terms(mode, trainers, transposed);
  const int outer_trainers = trainers.of(transposed ? Factor::b : Factor::a);
  const int inner_trainers = trainers.of(transposed ? Factor::a : Factor::b);
  if (terms.dense) dense_term_ = sum.add(product(outer, inner), 1.0 / trainers.world);
  if (terms.outer)
    outer_term_ = sum.add(outer, share(mode, split.weight->outer().trainable(), outer_trainers, trainers.world));
  if (terms.inner)
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

}  // namespace ab
