#pragma once
// SPDX-License-Identifier: MIT
//
// The passes of engine/kernels/low_rank.h as loops, for few factors: four rows of M at a time, so that what has been read of
// a factor serves them all, with sums in vector registers. Shapes are theirs.

#include "engine/core/tensor.h"

namespace ab::cpu {

void add_and_project(const Tensor& gradient, const Tensor& residual, const Tensor& q, const Tensor& m, const Tensor& p);

/// One product of the pass: Pᵀ·Q with P [r, n] and Q [r, columns].
struct Product {
  const float *p, *q;
};
void split_off_projection(const Product& own, const Product& mean, std::int64_t r, const double* failed,
                          const Tensor& m, const Tensor& residual);

}  // namespace ab::cpu
