#pragma once
// SPDX-License-Identifier: MIT
//
// Layer normalisation over the last dimension (Ba et al. 2016).   x: [rows, C], gamma, beta: [C]
//   mean = Σ x / C,  var = Σ (x − mean)² / C,  rstd = 1 / sqrt(var + eps)      of each row
//   y = gamma · xhat + beta,  xhat = (x − mean) · rstd
// With h = gamma · dy and means over the C values of a row:
//   dx = rstd · (h − mean(h) − xhat · mean(h · xhat))
//   dgamma = Σ dy · xhat,  dbeta = Σ dy      over the rows

#include "engine/core/tensor.h"

namespace ab {

struct LayerNormResult {
  Tensor y;
  Tensor mean, rstd;  ///< [rows], computing type: what the backward pass needs besides x
};
/// gamma, beta: [C] of the computing type.
LayerNormResult layer_norm_forward(const Tensor& x, const Tensor& gamma, const Tensor& beta, double epsilon);

/// dx + addend, of which the latter may be undefined.
Tensor layer_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& mean, const Tensor& rstd,
                           const Tensor& gamma, const Tensor& addend = {});

struct AffineGrads {
  Tensor dgamma, dbeta;  ///< [C] of the computing type
};
AffineGrads layer_norm_affine_backward(const Tensor& dy, const Tensor& x, const Tensor& mean, const Tensor& rstd);

}  // namespace ab
