#pragma once
// SPDX-License-Identifier: MIT
//
// The three decompositions that svd.cpp takes from cuSOLVER, on whole tensors. cuSOLVER stores matrices by
// columns: what it calls an m×n matrix is a row-major tensor [n, m] here, and the comments say so.

#include "engine/backend/cuda/thread_libraries.h"

namespace ab::cuda {

/// Replaces the symmetric a[n,n] (float64) by its eigenvectors, one per row; returns the eigenvalues [n],
/// both in ascending order.
Tensor eigen_in_place(ThreadLibraries& libraries, const Tensor& a);

/// Singular vectors of the matrix, m >= n, whose columns are the rows of `columns` [n, m] (float32, destroyed).
struct ColumnSvd {
  Tensor u_columns;  ///< [n, m], the left vectors as rows
  Tensor s;          ///< [n], descending
  Tensor v;          ///< [n, n], the right vectors as columns
};
ColumnSvd svd_of_columns(ThreadLibraries& libraries, const Tensor& columns);

/// Replaces the rows of `vectors` [n, m] (float64), m >= n, by orthonormal ones (Householder QR). Returns the
/// signs (float32 [n]) that they are still to be multiplied by: row j then points along the old row j, as far
/// as that is independent of the rows before it.
Tensor orthonormalise_rows(ThreadLibraries& libraries, const Tensor& vectors);

}  // namespace ab::cuda
