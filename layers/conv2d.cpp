// SPDX-License-Identifier: MIT
#include "layers/conv2d.h"

#include <numeric>

#include "engine/kernels/kernel_rows.h"
#include "engine/ops/elementwise.h"
#include "layers/weight.h"

namespace ab {
namespace {

/// Neighbours tell the same, so of the rows of images that a kernel's rows are observed at, one in four or a few more is enough:
/// the least distance that shares no divisor with the height, so that from image to image others are looked at. All of them where
/// images are too few for that, or have so few rows that none is a neighbour's like.
std::int64_t observed_rows_apart(const Conv2dSpec& spec) {
  std::int64_t apart = 4;
  while (std::gcd(apart, spec.height) != 1) ++apart;
  return spec.height < 4 || spec.batch < 2 * apart ? 1 : apart;
}

}  // namespace

Conv2d::Conv2d(const std::string& name, std::int64_t in, std::int64_t out, std::int64_t kernel,
               const Conv2dOptions& options, bool with_bias, const Build& build, ParamRole role,
               const std::optional<Distribution>& init)
    // The 2-D view of a grouped convolution is block-sparse: its factors would not save anything. One without padding may be a
    // classifier that sees a whole image, a matrix over its pixels.
    : weight_(name + ".weight",
              initial_value(name + ".weight", {out, kernel, kernel, in / options.groups},
                            init ? *init : kaiming_normal(out * kernel * kernel), build),
              options.groups == 1 ? role : ParamRole::always_sync, /*spatial=*/options.padding != 0),
      bias_{name + ".bias", with_bias ? Var(filled({out}, 0.0f, build.device), true) : Var(),
            role == ParamRole::always_sync ? ParamRole::always_sync : ParamRole::vector},
      options_(options) {}

SummedVar Conv2d::forward_summed(const Var& x) {
  SummedVar result;
  result.y = apply(x, Activation::none, training() ? &result.sums : nullptr);
  return result;
}

Var Conv2d::apply(const Var& x, Activation activation, Tensor* sums) {
  const DType dtype = x.value().dtype();
  const Var bias = cast(bias_.value, dtype);
  const Activation fused = weight_.observed() ? Activation::none : activation;
  const Conv2dSpec spec = conv2d_spec(x.shape(), weight_.shape(), options_);
  const Var y = run_factors(weight_, spec, dtype) ? apply_factors(x, bias, fused, sums)
                                                  : conv2d(x, weight_.formed(dtype), bias, options_, fused, sums);
  return weight_.observed() ? activate(observe(x, y, spec), activation) : y;
}

Var Conv2d::apply_factors(const Var& x, const Var& bias, Activation activation, Tensor* sums) {
  const DType dtype = x.value().dtype();
  Conv2dOptions inner = options_, outer{};
  if (is_spatial()) {
    inner = of_kernel_rows();
    outer = {.stride = {options_.stride.h, 1}, .padding = {options_.padding.h, 0}, .dilation = options_.dilation};
  }
  const std::int64_t o = weight_.outputs(), kernel_rows = weight_.rows() / o;
  const Var thin = conv2d(x, cast(weight_.inner().value, dtype), {}, inner);
  const Var to_outputs = reshape(cast(weight_.outer().value, dtype), {o, kernel_rows, 1, weight_.r()});
  return conv2d(thin, to_outputs, bias, outer, activation, sums);
}

Var Conv2d::observe(const Var& x, const Var& y, const Conv2dSpec& spec) {
  if (!is_spatial()) return weight_.observe(y);
  // All rows of all images as one high image, of which a stride leaves out rows.
  const std::int64_t apart = observed_rows_apart(spec), height = spec.batch * spec.height;
  Conv2dOptions options = of_kernel_rows();
  options.stride.h = apart;
  const Tensor parts = [&] {
    const NoGradScope no_grad;
    const Shape& w = weight_.shape();
    const Var w2 = reshape(weight_.formed(x.value().dtype()), {weight_.rows(), 1, w[2], w[3]});
    return conv2d_forward(x.value().view({1, height, spec.width, spec.in_channels}), w2.value(), {}, options);
  }();
  return weight_.observe(
      y, {.values = parts,
          .gradient = [rows = KernelRows{spec.height, spec.kernel_h, spec.stride.h, spec.padding.h, spec.dilation},
                       apart](const Tensor& dy) { return gradient_of_kernel_rows(dy, rows, apart); },
          .share = static_cast<double>(parts.dim(1)) / static_cast<double>(height)});
}

/// How a 1×kw convolution moves over the rows of an image.
Conv2dOptions Conv2d::of_kernel_rows() const {
  return {.stride = {1, options_.stride.w}, .padding = {0, options_.padding.w}, .dilation = options_.dilation};
}

void Conv2d::list(Inventory& inventory) {
  inventory.weights.push_back(&weight_);
  weight_.list(inventory.params);
  if (bias_.value.defined()) inventory.params.push_back(&bias_);
}

}  // namespace ab
