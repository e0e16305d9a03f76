// SPDX-License-Identifier: MIT
#include "layers/conv2d.h"

#include "engine/ops/activation.h"
#include "engine/ops/shape.h"
#include "layers/execution_cost.h"

namespace ab {

Conv2d::Conv2d(const std::string& name, std::int64_t in, std::int64_t out, std::int64_t kernel,
               const Conv2dOptions& options, bool with_bias, const Build& build, ParamRole role,
               const std::optional<Distribution>& init)
    : Conv2d(name, Shape{out, kernel, kernel, in / options.groups}, options, with_bias, build, role, init) {}

Conv2d::Conv2d(const std::string& name, const Shape& shape, const Conv2dOptions& options, bool with_bias,
               const Build& build, ParamRole role, const std::optional<Distribution>& init)
    // The 2-D view of a grouped convolution is block-sparse: its factors would not save anything.
    : weight_(name + ".weight",
              initial_value(name + ".weight", shape, init ? *init : kaiming_normal_fan_out(shape), build),
              options.groups == 1 ? role : ParamRole::always_sync),
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
  const Activation fused = weight_.observed() ? Activation::none : activation;
  const auto y = [&] {
    if (!run_factors(weight_, conv2d_spec(x.shape(), weight_.shape(), options_)))
      return conv2d(x, weight_.formed(dtype), bias, options_, fused, sums);
    const Var thin = conv2d(x, cast(weight_.inner().value, dtype), {}, options_);
    const Var outer = reshape(cast(weight_.outer().value, dtype), {weight_.out(), 1, 1, weight_.r()});
    return conv2d(thin, outer, bias, {}, fused, sums);
  }();
  return weight_.observed() ? activate(weight_.observe(y), activation) : y;
}

void Conv2d::list(Inventory& inventory) {
  inventory.weights.push_back(&weight_);
  weight_.list(inventory.params);
  if (bias_.value.defined()) inventory.params.push_back(&bias_);
}

}  // namespace ab
