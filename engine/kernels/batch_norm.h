#pragma once
// SPDX-License-Identifier: MIT
//
// Batch normalisation of NHWC activations, fused with an optional residual addition and ReLU:
//   y = act(gamma · (x − mean) · rstd + beta [+ residual])     per channel, rstd = 1 / sqrt(var + eps)
// With g = dy where y > 0 (dy without ReLU) and N = number of pixels:
//   dbeta = Σ g     dgamma = rstd · Σ g (x − mean)     dresidual = g
//   dx = gamma · rstd · (g − dbeta / N − (x − mean) · rstd · dgamma / N)     (training)
//   dx = gamma · rstd · g                                                    (evaluation)
// Nothing but x, y, mean and rstd is kept for the backward pass.

#include "engine/core/tensor.h"

namespace ab {

/// What a batch is normalised with, in the computing type (float32, or float64 for float64 activations).
struct BatchMoments {
  Tensor mean;  ///< [C]
  Tensor rstd;  ///< [C]
};

/// Moments of x [..., C] over all but the last dimension. Moves `running_mean` and `running_var` [C], of the
/// computing type, by `momentum` towards the batch (its unbiased variance). Needs at least two pixels.
BatchMoments batch_moments(const Tensor& x, double epsilon, const Tensor& running_mean,
                           const Tensor& running_var, double momentum);
/// The moments that evaluation normalises with.
BatchMoments running_moments(const Tensor& running_mean, const Tensor& running_var, double epsilon);

/// gamma, beta: [C] of the computing type; `residual` (shape and type of x) may be undefined.
Tensor batch_norm_forward(const Tensor& x, const BatchMoments& moments, const Tensor& gamma,
                          const Tensor& beta, const Tensor& residual, bool relu);

struct BatchNormNeeds {
  bool dx = true, dresidual = false;
};
struct BatchNormGrads {
  Tensor dx, dgamma, dbeta, dresidual;  ///< dgamma and dbeta of the computing type
};
/// `y` is the forward result, or undefined when there was no ReLU. `training`: the moments came from x.
BatchNormGrads batch_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& y,
                                   const BatchMoments& moments, const Tensor& gamma, bool training,
                                   BatchNormNeeds needs);

}  // namespace ab
