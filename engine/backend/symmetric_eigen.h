#pragma once
// SPDX-License-Identifier: MIT
//
// Eigenvalues and eigenvectors of a symmetric matrix, in float64 on the host: A = Vᵀ · diag(values) · V with the vectors
// as rows of V. Implemented by engine/backend/cpu.

#include <vector>

#include "engine/core/tensor.h"

namespace ab {

struct SymmetricEigen {
  std::vector<double> values;  ///< [n], descending
  Tensor vectors;              ///< [n, n] float64, orthonormal rows
};

/// `a`: [n, n] float64 on the host. It must be finite.
/// Throws Error(numerics) when the iteration does not converge.
SymmetricEigen symmetric_eigen(const Tensor& a);
/// The same without vectors, in less than half of the time.
std::vector<double> symmetric_eigenvalues(const Tensor& a);

}  // namespace ab
