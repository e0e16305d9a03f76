#pragma once
// SPDX-License-Identifier: MIT
//
// Elementwise activations and their gradients on plain tensors; results that are returned are fresh.
//   relu     y = max(z, 0)                      dz = dy where y > 0
//   gelu     y = z Φ(z), exact (erf)            dz = dy (Φ(z) + z φ(z))
//   dropout  y = x · mask / (1 − p)             dx = dy · mask / (1 − p), mask_i = [uniform_i >= p]
//   drop path  the same with one mask for each sample

#include "engine/core/activation.h"

namespace ab {

/// y = act(z). y may be z.
Tensor activation_forward(Activation activation, const Tensor& z);
void activation_forward(Activation activation, const Tensor& z, const Tensor& y);
/// dz = dy · act'(z). dz may be dy.
Tensor activation_backward(const ActivationGrad& activation, const Tensor& dy);
void activation_backward(const ActivationGrad& activation, const Tensor& dy, const Tensor& dz);

/// Forward and backward alike: both draw the mask from Philox{seed, stream}. p in [0, 1), seed: [1] int64.
Tensor apply_dropout(const Tensor& x, float p, const Tensor& seed, std::uint64_t stream);
/// The same with number n for all of sample n.   x: [N, ...]
Tensor apply_drop_path(const Tensor& x, float p, const Tensor& seed, std::uint64_t stream);

}  // namespace ab
