// SPDX-License-Identifier: MIT
#include "layers/conv2d.h"

#include "engine/ops/shape.h"
#include "layers/execution_cost.h"
#include "layers/init.h"

namespace ab {

Conv2d::Conv2d(const std::string& name, std::int64_t in, std::int64_t out, std::int64_t kernel,
               const Conv2dOptions& options, bool with_bias, const Build& build, ParamRole role)
    // The 2-D view of a grouped convolution is block-sparse: its factors would not save anything.
    : weight_(name + ".weight",
              kaiming_normal_fan_out({out, kernel, kernel, in / options.groups}, name + ".weight", build.seed, build.device),
              options.groups == 1 ? role : ParamRole::always_sync),
      bias_{name + ".bias", with_bias ? Var(filled({out}, 0.0f, build.device), true) : Var(),
            role == ParamRole::always_sync ? ParamRole::always_sync : ParamRole::vector},
      options_(options) {}

Var Conv2d::forward(const Var& x) {
  if (!run_factors(weight_, conv2d_spec(x.shape(), weight_.shape(), options_)))
    return conv2d(x, weight_.formed(), bias_.value, options_);
  const Var thin = conv2d(x, weight_.inner().value, {}, options_);
  return conv2d(thin, reshape(weight_.outer().value, {weight_.out(), 1, 1, weight_.r()}), bias_.value, {});
}

void Conv2d::list(Inventory& inventory) {
  inventory.weights.push_back(&weight_);
  weight_.list(inventory.params);
  if (bias_.value.defined()) inventory.params.push_back(&bias_);
}

}  // namespace ab
