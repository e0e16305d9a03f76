// SPDX-License-Identifier: MIT
#include "layers/conv2d.h"

#include "engine/kernels/elementwise.h"
#include "engine/ops/activation.h"
#include "engine/ops/shape.h"
#include "layers/execution_cost.h"

namespace ab {
namespace {

/// [n, n], on the device: n rows of n + 1 numbers, a one and n zeros, as far as they are needed.
Tensor identity(std::int64_t n, Device device) {
  const Tensor rows = filled({n, n + 1}, 1.0f, device), first = filled({n + 1}, 0.0f, device);
  fill(first.slice(0, 1), 1);
  scale_columns(rows, first);
  return rows.view({n * (n + 1)}).slice(0, n * n).view({n, n});
}

}  // namespace

Conv2d::Conv2d(const std::string& name, std::int64_t in, std::int64_t out, std::int64_t kernel,
               const Conv2dOptions& options, bool with_bias, const Build& build, ParamRole role,
               const std::optional<Distribution>& init)
    : Conv2d(name, Shape{out, kernel, kernel, in / options.groups}, options, with_bias, build, role, init) {}

Conv2d::Conv2d(const std::string& name, const Shape& shape, const Conv2dOptions& options, bool with_bias,
               const Build& build, ParamRole role, const std::optional<Distribution>& init)
    // The 2-D view of a grouped convolution is block-sparse: its factors would not save anything. One without padding may be a
    // classifier that sees a whole image, a matrix over its pixels.
    : weight_(name + ".weight",
              initial_value(name + ".weight", shape, init ? *init : kaiming_normal_fan_out(shape), build),
              options.groups == 1 ? role : ParamRole::always_sync, /*spatial=*/options.padding != 0),
      bias_{name + ".bias", with_bias ? Var(filled({shape[0]}, 0.0f, build.device), true) : Var(),
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
  if (weight_.observed() && is_spatial()) return apply_observing_rows(x, bias, activation, sums);
  const Activation fused = weight_.observed() ? Activation::none : activation;
  const Var y = run_factors(weight_, conv2d_spec(x.shape(), weight_.shape(), options_))
                    ? apply_factors(x, bias, fused, sums)
                    : conv2d(x, weight_.formed(dtype), bias, options_, fused, sums);
  return weight_.observed() ? activate(weight_.observe(y), activation) : y;
}

Var Conv2d::apply_factors(const Var& x, const Var& bias, Activation activation, Tensor* sums) {
  const DType dtype = x.value().dtype();
  Conv2dOptions inner = options_, outer{};
  if (is_spatial()) {
    const PerAxis s = options_.stride, p = options_.padding;
    inner.stride = {1, s.w}, inner.padding = {0, p.w};
    outer = {.stride = {s.h, 1}, .padding = {p.h, 0}, .dilation = options_.dilation};
  }
  const Var thin = conv2d(x, cast(weight_.inner().value, dtype), {}, inner);
  return conv2d(thin, rows_to_outputs(cast(weight_.outer().value, dtype)), bias, outer, activation, sums);
}

Var Conv2d::apply_observing_rows(const Var& x, const Var& bias, Activation activation, Tensor* sums) {
  const DType dtype = x.value().dtype();
  const Shape& w = weight_.shape();
  // Rows in padding are observed too, as the sums contain them.
  Conv2dOptions of_rows = options_;
  of_rows.stride.h = 1;
  const Var rows =
      weight_.observe(conv2d(x, reshape(weight_.formed(dtype), {weight_.rows(), 1, w[2], w[3]}), {}, of_rows));
  const Conv2dOptions of_sums{.stride = {options_.stride.h, 1}, .dilation = options_.dilation};
  const Tensor each_to_its_output = identity(weight_.rows(), x.value().device());
  return conv2d(rows, rows_to_outputs(cast(Var(each_to_its_output), dtype)), bias, of_sums, activation, sums);
}

/// [O·kh, c] as the kernel of a convolution from c channels, [O, kh, 1, c]; [O, c] as [O, 1, 1, c].
Var Conv2d::rows_to_outputs(const Var& matrix) const {
  return reshape(matrix, {weight_.outputs(), weight_.rows() / weight_.outputs(), 1, matrix.shape()[1]});
}

void Conv2d::list(Inventory& inventory) {
  inventory.weights.push_back(&weight_);
  weight_.list(inventory.params);
  if (bias_.value.defined()) inventory.params.push_back(&bias_);
}

}  // namespace ab
