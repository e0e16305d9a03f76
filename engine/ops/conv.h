#pragma once
// SPDX-License-Identifier: MIT
//
// 2-D convolution, NHWC activations and KRSC weights.

#include "engine/autograd/var.h"
#include "engine/backend/backend.h"

namespace ab {

struct Conv2dOptions {
  PerAxis stride = 1, padding = 0;
  std::int64_t dilation = 1, groups = 1;
};
struct Conv2dGrads {
  Tensor dw, db;
};

/// The full description of a call; throws Error(config) when x and w do not fit each other.
Conv2dSpec conv2d_spec(const Shape& x, const Shape& w, const Conv2dOptions& options);

/// y = act(x ⋆ w + b)    x: [N, H, W, I], w: [O, kh, kw, I/groups], b: [O] or undefined, y: [N, H', W', O]
/// `sums` receives Σ y and Σ y² per channel, [2, O] float32, where that is faster than reading y again. It
/// stays or becomes undefined elsewhere: with an activation, in other types than those of 16 bits, on a CPU, and
/// where plans are not timed (core/plan_choice.h). They may be those of y before it is rounded. A variance computed
/// from them is wrong by some 10⁻⁶ of the squared mean: by 1 % where the mean is a hundred deviations and y in 16 bits
/// has little left of them. float32 can do better than that, so it does without.
/// `grad`, where it is given, receives the way back through the activation.
Tensor conv2d_forward(const Tensor& x, const Tensor& w, const Tensor& b, const Conv2dOptions& options,
                      Activation activation = Activation::none, Tensor* sums = nullptr, ActivationGrad* grad = nullptr);
/// From dy, the gradient of x ⋆ w + b: dx = transposed convolution of dy with w. The epilogue has a `grad` where x = act(z)
/// and dx is to be the gradient of z, or an `addend` of the shape of x.
Tensor conv2d_backward_data(const Tensor& dy, const Conv2dSpec& spec, const Tensor& w, const Epilogue& epilogue = {});
/// dw = correlation of x with dy,  db = sum of dy over N, H', W'; x is read for dw only.
Conv2dGrads conv2d_backward_weight(const Tensor& dy, const Conv2dSpec& spec, const Tensor& x, bool needs_dw,
                                   bool needs_db);
/// With `sums` a training batch norm takes y, which subtracts what b adds: the gradient of b is zero, and no pass over dy
/// looks for it.
Var conv2d(const Var& x, const Var& w, const Var& b, const Conv2dOptions& options,
           Activation activation = Activation::none, Tensor* sums = nullptr);

}  // namespace ab
