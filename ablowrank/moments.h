#pragma once
// SPDX-License-Identifier: MIT
//
// Optimizer state of a weight that becomes factors. Gradients of the factors are projections of the gradient of W:
// dA = dW Bᵀ, dB = Aᵀ dW; moments follow the same way.

#include "engine/optim/optimizer.h"
#include "layers/weight.h"

namespace ab {

/// After a split: gives trained factors their state and drops that of W and of a frozen factor.
/// m ← projection of W's first moment; v ← the same with squared entries of the other factor, which
/// is the variance of the projection when the entries of dW are independent; the update count goes along.
void project_moments(Weight& weight, Optimizer& optimizer);

/// The factors of a weight before a later cut, with their optimizer state.
struct EarlierFactors {
  Tensor outer, inner;  ///< [O, r], [r, K]
  ParamState of_outer, of_inner;
};
/// Those of a factored weight, whose state the optimizer no longer has afterwards.
EarlierFactors take_factors(Weight& weight, Optimizer& optimizer);
/// After a later cut: later factors lie nearly within the earlier ones, outer' = outer·X and inner' = Y·inner (X and
/// Y are the best in the sense of least squares), so that m_outer' = m_outer·Yᵀ, m_inner' = Xᵀ·m_inner are their
/// first moments; v with squared entries of X and Y; the update counts go along.
void project_moments(const EarlierFactors& earlier, Weight& weight, Optimizer& optimizer);

}  // namespace ab
