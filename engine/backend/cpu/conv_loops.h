#pragma once
// SPDX-License-Identifier: MIT
//
// Convolutions as plain float64 loops, straight from the definition: what gradient checks run on and what
// the fast kernels are tested against.
//   y[n,p,q,k] = bias[k] + Σ_{r,s,c} x[n, p·stride + r·dilation − padding, q·stride + …, c] · w[k,r,s,c]

#include "engine/backend/backend.h"

namespace ab::cpu {

/// `bias` may be null.
void conv2d_forward_loops(const Conv2dSpec& spec, const double* x, const double* w, const double* bias,
                          double* y);
void conv2d_backward_data_loops(const Conv2dSpec& spec, const double* dy, const double* w, double* dx);
void conv2d_backward_weight_loops(const Conv2dSpec& spec, const double* dy, const double* x, double* dw);

}  // namespace ab::cpu
