#pragma once
// SPDX-License-Identifier: MIT
//
// The passes over memory of low-rank gradient compression (engine/sync/powersgd.h): M [n, m] is large, its factors
// P [r, n] and Q [r, m] are small. Factors lie as rows, so that all of them are read and written along memory.
//   add_and_project        M = G + E and P = Q·Mᵀ
//   split_off_projection   E = M − P_ownᵀ·Q_own and Ĝ = Pᵀ·Q in place of M
// With few factors each is one pass over its matrices (on a CPU only the second), else products of the library.

#include "engine/core/tensor.h"

namespace ab {

/// m = gradient + residual and p = q·mᵀ.   m, gradient, residual: [n, m]; q: [r, m]; p: [r, n]. All float32. An undefined
/// gradient counts as zeros.
void add_and_project(const Tensor& gradient, const Tensor& residual, const Tensor& q, const Tensor& m, const Tensor& p);

/// A product Pᵀ·Q of two factors [r, n] and [r, m].
struct RowFactors {
  Tensor p, q;
};
/// residual = m − own and m = mean; the residual stays as it is when `failed` (engine/kernels/finite_check.h) is not zero.
void split_off_projection(const RowFactors& own, const RowFactors& mean, const Tensor& failed, const Tensor& m,
                          const Tensor& residual);

}  // namespace ab
