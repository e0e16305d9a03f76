#pragma once
// SPDX-License-Identifier: MIT
//
// Normalisation over the batch (Ioffe & Szegedy 2015) and over the features (Ba et al. 2016).

#include "engine/autograd/var.h"
#include "engine/kernels/batch_norm.h"

namespace ab {

/// Running statistics of one batch norm: buffers, updated in place by training forwards (unbiased variance);
/// and whose batches a training step takes its statistics over.
struct BatchNormStats {
  Tensor running_mean;  ///< [C]
  Tensor running_var;   ///< [C]
  float momentum = 0.1f;
  float epsilon = 1e-5f;
  /// Not empty: the batches of several ranks, as if they were one (synchronised batch norm). Each of them calls its
  /// batch norms in the same order; what this refers to must outlive the backward pass.
  SumOverRanks sum_over_ranks = {};
};

/// y = act(gamma · (x − mean) / sqrt(var + eps) + beta [+ residual])   over all but the last dimension of x.
/// x: [..., C], gamma, beta: [C]; `residual` (shape of x) may be undefined. Fusing the addition and the ReLU
/// saves three passes over memory. Training uses batch statistics, evaluation the running ones. `sums` may bring
/// Σ x and Σ x² per channel, [2, C] float32, from the convolution that computed x.
Var batch_norm(const Var& x, const Var& gamma, const Var& beta, BatchNormStats& stats, bool training,
               Activation activation = Activation::none, const Var& residual = {}, const Tensor& sums = {});

/// y = gamma · (x − mean) / sqrt(var + eps) + beta   over the last dimension.  x: [..., C], gamma, beta: [C]
Var layer_norm(const Var& x, const Var& gamma, const Var& beta, float epsilon = 1e-5f);

}  // namespace ab
