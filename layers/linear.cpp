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
  if (!run_factors(weight_, x.shape()[0])) return linear(x, weight_.formed(), bias_.value);
  return linear(linear(x, weight_.inner().value, {}), weight_.outer().value, bias_.value);
}

void Linear::list(Inventory& inventory) {
  inventory.weights.push_back(&weight_);
  weight_.list(inventory.params);
  inventory.params.push_back(&bias_);
}

}  // namespace ab
