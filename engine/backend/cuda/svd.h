#pragma once
// SPDX-License-Identifier: MIT
//
// Thin singular value decomposition of tall float32 matrices on a GPU, W[m,n] = U · diag(s) · Vᵀ with m >= n.
//   gram    eigenvectors V of WᵀW in float64, s = sqrt(eigenvalues), U = W V / s
//   direct  cuSOLVER's gesvd in float32: slower, the reference
// Signs are fixed as on the CPU: the entry of largest magnitude in each row of Vᵀ is positive.

#include "engine/backend/backend.h"
#include "engine/backend/cuda/thread_libraries.h"

namespace ab::cuda {

/// Throws Error(numerics) when `w` holds NaN or infinity or when the iteration does not converge. U has
/// orthonormal columns even where singular values vanish.
Svd svd(ThreadLibraries& libraries, const Tensor& w, SvdMethod method);

}  // namespace ab::cuda
