// SPDX-License-Identifier: MIT
#include "engine/ops/conv.h"

#include "engine/backend/plan_choice.h"
#include "engine/kernels/activation.h"
#include "engine/kernels/elementwise.h"
#include "engine/kernels/reduce.h"
#include "engine/ops/checks.h"
#include "engine/ops/flops.h"

namespace ab {
namespace {

/// The same computation on the same memory as the backends run it best: an image that is seen as a whole (the
/// classifier of a VGG) is one pixel with height · width · channels channels.
Conv2dSpec simplest(const Conv2dSpec& spec) {
  if (!spec.is_whole_image()) return spec;
  return {.batch = spec.batch,
          .height = 1,
          .width = 1,
          .in_channels = spec.height * spec.width * spec.in_channels,
          .out_channels = spec.out_channels};
}

/// In each of the three directions.
void count_convolution(const Conv2dSpec& spec) {
  count_multiplications(spec.batch * spec.out_height() * spec.out_width() * spec.out_channels * spec.kernel_h *
                        spec.kernel_w * (spec.in_channels / spec.groups));
}

/// Plans that sum are looked for where plans are timed, as it takes seconds to make one.
bool sums_may_pay(DType dtype) { return plan_choice() == PlanChoice::timed && size_of(dtype) == 2; }

}  // namespace

Conv2dSpec conv2d_spec(const Shape& x, const Shape& w, const Conv2dOptions& options) {
  AB_CHECK(x.rank() == 4 && w.rank() == 4, "conv2d: expected x [N, H, W, I] and w [O, kh, kw, I/groups], got {} and {}",
           x.str(), w.str());
  const PerAxis stride = options.stride, padding = options.padding;
  AB_CHECK(stride.h > 0 && stride.w > 0 && options.dilation > 0 && padding.h >= 0 && padding.w >= 0 &&
               options.groups > 0,
           "conv2d: stride {}, dilation {} and groups {} must be positive and padding {} not negative", stride.str(),
           options.dilation, options.groups, padding.str());
  AB_CHECK(w[3] * options.groups == x[3] && w[0] % options.groups == 0,
           "conv2d: w {} with {} groups does not fit the {} channels of x {}", w.str(), options.groups, x[3], x.str());
  const Conv2dSpec spec{.batch = x[0],
                        .height = x[1],
                        .width = x[2],
                        .in_channels = x[3],
                        .out_channels = w[0],
                        .kernel_h = w[1],
                        .kernel_w = w[2],
                        .stride = stride,
                        .padding = padding,
                        .dilation = options.dilation,
                        .groups = options.groups};
  const auto reach = [&](std::int64_t kernel) { return options.dilation * (kernel - 1) + 1; };
  AB_CHECK(x[1] + 2 * padding.h >= reach(w[1]) && x[2] + 2 * padding.w >= reach(w[2]),
           "conv2d: the kernel of w {} is larger than the padded image of x {}; pad more or drop the layer", w.str(),
           x.str());
  return spec;
}

Tensor conv2d_forward(const Tensor& x, const Tensor& w, const Tensor& b, const Conv2dOptions& options,
                      Activation activation, Tensor* sums, ActivationGrad* grad) {
  const Conv2dSpec spec = conv2d_spec(x.shape(), w.shape(), options);
  check_alike("conv2d", x, "w", w);
  if (b.defined()) {
    AB_CHECK(b.numel() == spec.out_channels, "conv2d: b {} does not fit w {}; expected one value per output channel",
             b.shape().str(), w.shape().str());
    check_alike("conv2d", x, "b", b);
  }
  const Tensor y(Shape{spec.batch, spec.out_height(), spec.out_width(), spec.out_channels}, x.dtype(), x.device());
  if (sums && activation == Activation::none && sums_may_pay(x.dtype()))
    *sums = backend(x.device()).conv2d_forward_summed(simplest(spec), x, w, b, y);
  else backend(x.device()).conv2d_forward(simplest(spec), x, w, forward_epilogue(b, activation, y, grad), y);
  count_convolution(spec);
  return y;
}

Tensor conv2d_backward_data(const Tensor& dy, const Conv2dSpec& spec, const Tensor& w, const Epilogue& epilogue) {
  Tensor dx(Shape{spec.batch, spec.height, spec.width, spec.in_channels}, dy.dtype(), dy.device());
  backend(dy.device()).conv2d_backward_data(simplest(spec), dy, w, dx, epilogue);
  count_convolution(spec);
  return dx;
}

Conv2dGrads conv2d_backward_weight(const Tensor& dy, const Conv2dSpec& spec, const Tensor& x, bool needs_dw,
                                   bool needs_db) {
  Conv2dGrads grads;
  if (needs_dw) {
    grads.dw = Tensor(Shape{spec.out_channels, spec.kernel_h, spec.kernel_w, spec.in_channels / spec.groups},
                      backend(dy.device()).weight_gradient_type(dy), dy.device());
    if (needs_db) grads.db = Tensor(Shape{spec.out_channels}, dy.dtype(), dy.device());
    backend(dy.device()).conv2d_backward_weight(simplest(spec), dy, x, grads.dw, grads.db);
    count_convolution(spec);
  } else if (needs_db) {
    grads.db = column_sums(dy);
  }
  return grads;
}

Var conv2d(const Var& x, const Var& w, const Var& b, const Conv2dOptions& options, Activation activation,
           Tensor* sums) {
  const bool bias_has_no_effect = sums && b.requires_grad();
  const bool needs_dx = x.requires_grad(), needs_dw = w.requires_grad(), needs_db = b.requires_grad() && !sums;
  const Conv2dSpec spec = conv2d_spec(x.shape(), w.shape(), options);
  // Nothing is kept alive that no gradient will need.
  const Tensor kept_x = needs_dw ? x.value() : Tensor{}, kept_w = needs_dx ? w.value() : Tensor{};
  const ActivationGrad of_x = needs_dx ? x.activation_grad() : ActivationGrad{};
  ActivationGrad of_y;
  const bool is_recorded = recording() && (needs_dx || needs_dw || needs_db);
  const Tensor y =
      conv2d_forward(x.value(), w.value(), b.value(), options, activation, sums, is_recorded ? &of_y : nullptr);
  const auto backward = [=, wide = w.takes_float32_gradient()](const Tensor& dy) {
    Conv2dGrads grads = conv2d_backward_weight(dy, spec, kept_x, needs_dw, needs_db);
    if (needs_dw && !wide) grads.dw = cast(grads.dw, dy.dtype());
    if (bias_has_no_effect) grads.db = Tensor::zeros({spec.out_channels}, dy.dtype(), dy.device());
    Gradient dx;
    if (of_x.defined()) dx = of_z(conv2d_backward_data(dy, spec, kept_w, {.grad = of_x}));
    else if (needs_dx)
      dx = onto([=](const Tensor& addend) { return conv2d_backward_data(dy, spec, kept_w, {.addend = addend}); });
    return Gradients{dx, grads.dw, grads.db};
  };
  return record("conv2d", y, {x, w, b}, backward, of_y);
}

}  // namespace ab
