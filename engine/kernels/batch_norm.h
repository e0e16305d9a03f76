#pragma once
// SPDX-License-Identifier: MIT
//
// Batch normalisation of NHWC activations, fused with an optional residual addition and ReLU:
//   y = act(gamma · (x − mean) · rstd + beta [+ residual])     per channel, rstd = 1 / sqrt(var + eps)
// With g = dy where y > 0 (dy without ReLU) and N = number of pixels:
//   dbeta = Σ g     dgamma = rstd · Σ g (x − mean)     dresidual = g
//   dx = gamma · rstd · (g − dbeta / N − (x − mean) · rstd · dgamma / N)     (training)
//   dx = gamma · rstd · g                                                    (evaluation)
// Nothing but x, y (on a GPU: where it is above 0, as bits; on a CPU only with a residual), mean and rstd is kept for the backward
// pass.
// In training, several ranks may take the statistics over their batches together, as if they were one: mean, var,
// N and the sums in dx are then those of all ranks, which two small collectives add up, one in each direction;
// dgamma and dbeta as returned stay those of the rank's own pixels, which are averaged like every gradient.

#include <functional>

#include "engine/core/tensor.h"

namespace ab {

/// The moments that normalise a batch, in the computing type (float32, or float64 for float64 activations).
struct BatchMoments {
  Tensor mean;              ///< [C]
  Tensor rstd;              ///< [C]
  std::int64_t pixels = 0;  ///< N, on all ranks that share the moments; 0: they are constants
};

/// Replaces a float64 tensor on the device of x by its sum over the ranks that share statistics. Empty: this rank
/// has its own.
using SumOverRanks = std::function<void(const Tensor&)>;

/// Moments of x [..., C] over all but the last dimension. Moves `running_mean` and `running_var` [C], of the
/// computing type, by `momentum` towards the batch (its unbiased variance). Needs at least two pixels.
/// `sums`: Σ x and Σ x² of this rank, [2, C] float32, which save reading x; or undefined.
BatchMoments batch_moments(const Tensor& x, const Tensor& sums, double epsilon, const Tensor& running_mean,
                           const Tensor& running_var, double momentum, const SumOverRanks& sum_over_ranks = {});
/// The moments that evaluation normalises with.
BatchMoments running_moments(const Tensor& running_mean, const Tensor& running_var, double epsilon);

/// The state of a ReLU for the way back, one of these (batch_norm_functors.h); none is defined where there was no ReLU.
struct ReluResult {
  Tensor y;
  Tensor bits;  ///< where y > 0, uint8, a byte for each Pack of y
  Tensor beta;  ///< with which y is made of x again
};
struct BatchNormResult {
  Tensor y;
  ReluResult relu;
};
/// gamma, beta: [C] of the computing type; `residual` (shape and type of x) may be undefined.
BatchNormResult batch_norm_forward(const Tensor& x, const BatchMoments& moments, const Tensor& gamma,
                                   const Tensor& beta, const Tensor& residual, bool relu, bool for_backward);

struct BatchNormNeeds {
  bool dx = true, dresidual = false;
};
struct BatchNormGrads {
  Tensor dx, dgamma, dbeta, dresidual;  ///< dgamma and dbeta of the computing type
};
/// `relu` is of the forward result. `sum_over_ranks` as in batch_moments. The memory of a dy that nobody shares becomes that of
/// dresidual, or else of dx.
BatchNormGrads batch_norm_backward(const Tensor& dy, const Tensor& x, const ReluResult& relu,
                                   const BatchMoments& moments, const Tensor& gamma, BatchNormNeeds needs,
                                   const SumOverRanks& sum_over_ranks = {});

}  // namespace ab
