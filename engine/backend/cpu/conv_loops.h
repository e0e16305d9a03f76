#pragma once
// SPDX-License-Identifier: MIT
//
// Convolutions as plain loops, straight from the definition. In float64, gradient checks run on them, and tests compare
// the fast kernels with them. In float32, they run grouped convolutions in builds without oneDNN.
//   y[n,p,q,k] = bias[k] + Σ_{r,s,c} x[n, p·stride + r·dilation − padding, q·stride + …, c] · w[k,r,s,c]

#include "engine/backend/backend.h"

namespace ab::cpu {

/// `bias` may be null. T is float or double.
template <class T> void conv2d_forward_loops(const Conv2dSpec& spec, const T* x, const T* w, const T* bias, T* y);
template <class T> void conv2d_backward_data_loops(const Conv2dSpec& spec, const T* dy, const T* w, T* dx);
template <class T> void conv2d_backward_weight_loops(const Conv2dSpec& spec, const T* dy, const T* x, T* dw);

}  // namespace ab::cpu
