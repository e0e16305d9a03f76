// SPDX-License-Identifier: MIT
#include "layers/linear.h"

#include "engine/ops/linear.h"
#include "layers/execution_cost.h"
#include "layers/init.h"

namespace ab {

Linear::Linear(const std::string& name, std::int64_t in, std::int64_t out, const Build& build, ParamRole role)
    : weight_(name + ".weight", uniform_fan_in({out, in}, in, name + ".weight", build.seed, build.device), role),
      bias_{name + ".bias", Var(uniform_fan_in({out}, in, name + ".bias", build.seed, build.device), true),
            role == ParamRole::always_sync ? ParamRole::always_sync : ParamRole::vector} {}

Var Linear::forward(const Var& x) {
  if (!weight_.factored()) return linear(x, weight_.dense().value, bias_.value);
  const Var& outer = weight_.outer().value;
  const Var& inner = weight_.inner().value;
  if (run_factors(weight_, x.shape()[0], weight_.execution()))
    return linear(linear(x, inner, {}), outer, bias_.value);
  return linear(x, matmul(outer, inner), bias_.value);
}

void Linear::list(Inventory& inventory) {
  inventory.weights.push_back(&weight_);
  weight_.list(inventory.params);
  inventory.params.push_back(&bias_);
}

}  // namespace ab
