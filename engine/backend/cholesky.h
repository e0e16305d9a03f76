#pragma once
// SPDX-License-Identifier: MIT
//
// The Cholesky decomposition of a symmetric positive definite matrix, in float64 on the host: A = L·Lᵀ. Implemented by
// engine/backend/cpu.

#include "engine/core/tensor.h"

namespace ab {

struct Cholesky {
  Tensor lower;    ///< L, zero above its diagonal  [n, n] float64
  Tensor inverse;  ///< L⁻¹, the same               [n, n] float64
};

/// `a`: [n, n] float64 on the host, of which the lower triangle is read.
/// Throws Error(numerics) when it is not positive definite, or not finite.
Cholesky cholesky(const Tensor& a);

}  // namespace ab
