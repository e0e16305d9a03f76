#pragma once
// SPDX-License-Identifier: MIT
//
// Optimizer state of a weight across its change of form. Gradients of the factors are projections of the
// gradient of W: dA = dW Bᵀ, dB = Aᵀ dW; moments can follow the same way.

#include "ablowrank/join.h"
#include "engine/optim/optimizer.h"

namespace ab {

/// After a split: gives trained factors their state and drops that of a frozen one.
/// project: m ← projection of W's first moment; v ← the same with squared entries of the frozen factor, which
/// is the variance of the projection when the entries of dW are independent; the update count goes along.
void carry_moments_to_factors(Weight& weight, MomentCarry carry, Optimizer& optimizer);

/// The factors of a weight before a later cut, with their optimizer state.
struct EarlierFactors {
  Tensor outer, inner;  ///< [O, r], [r, K]
  ParamState of_outer, of_inner;
};
/// Those of a factored weight, whose state the optimizer no longer has afterwards.
EarlierFactors take_factors(Weight& weight, Optimizer& optimizer);
/// After a later cut: later factors lie within the earlier ones, outer' = outer·X and inner' = Y·inner (with
/// Directions::loss nearly so: X is the best in the sense of least squares), so that
/// project: m_outer' = m_outer·Yᵀ, m_inner' = Xᵀ·m_inner are their first moments; v with squared entries of X and Y; the
/// update counts go along. Otherwise they start anew.
void carry_moments_to_later_factors(const EarlierFactors& earlier, Weight& weight, MomentCarry carry,
                                    Optimizer& optimizer);

/// The join of the first moments, for MomentCarry::project with SyncMode::tangent and an optimizer whose
/// only state is a first moment; the dense moment is join.dense(sum) once the sum has run.
bool moments_can_join(const AbOptions& options, int moments_per_parameter);
bool moments_can_join(const AbOptions& options, const SplitWeight& split, Optimizer& optimizer);
Join join_moments(const SplitWeight& split, const AbOptions& options, const Trainers& trainers, Optimizer& optimizer,
                  WeightedSum& sum);

/// After a sync: gives W its state (`dense_moment` may be undefined) and drops that of the factors.
void carry_moments_to_dense(Weight& weight, MomentCarry carry, const Tensor& dense_moment, Optimizer& optimizer);

}  // namespace ab
