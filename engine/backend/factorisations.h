#pragma once
// SPDX-License-Identifier: MIT
//
// Factorisations of float64 matrices on the host. Implemented by engine/backend/cpu, with LAPACK.

#include <vector>

#include "engine/core/tensor.h"

namespace ab {

struct Cholesky {
  Tensor lower;    ///< L, zero above its diagonal  [n, n] float64
  Tensor inverse;  ///< L⁻¹, the same               [n, n] float64
};

/// `a`: [n, n] float64 on the host, of which the lower triangle is read.
/// Throws Error(numerics) when it is not positive definite, or not finite.
Cholesky cholesky(const Tensor& a);

/// Eigenvalues and eigenvectors of a symmetric matrix: A = Vᵀ · diag(values) · V with the vectors as rows of V.
struct SymmetricEigen {
  std::vector<double> values;  ///< [n], descending
  Tensor vectors;              ///< [n, n] float64, orthonormal rows
};

/// `a`: [n, n] float64 on the host. It must be finite.
/// Throws Error(numerics) when the iteration does not converge.
SymmetricEigen symmetric_eigen(const Tensor& a);
/// The same without vectors, in less than half of the time.
std::vector<double> symmetric_eigenvalues(const Tensor& a);

/// An orthonormal basis of the columns of a matrix, by Householder's QR. The j-th vector points along column j as far as that is independent of the columns before it; where it is not, others
/// complete the basis.   y: [m, n] float64 on the host, m >= n -> [m, n]
Tensor orthonormal_columns(const Tensor& y);

}  // namespace ab
