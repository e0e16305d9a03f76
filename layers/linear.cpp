// SPDX-License-Identifier: MIT
#include "layers/linear.h"

#include "engine/ops/linear.h"
#include "layers/execution_cost.h"

namespace ab {

Var affine(const Var& x, const Weight& weight, const Var& bias) {
  if (!run_factors(weight, x.value().numel() / weight.in())) return linear(x, weight.formed(), bias);
  return linear(linear(x, weight.inner().value, {}), weight.outer().value, bias);
}

Linear::Linear(const std::string& name, std::int64_t in, std::int64_t out, const Build& build, ParamRole role,
               const std::optional<LinearInit>& init)
    : weight_(name + ".weight",
              initial_value(name + ".weight", {out, in}, init ? init->weight : uniform_fan_in(in), build), role),
      bias_{name + ".bias",
            Var(initial_value(name + ".bias", {out}, init ? init->bias : uniform_fan_in(in), build), true),
            role == ParamRole::always_sync ? ParamRole::always_sync : ParamRole::vector} {}

void Linear::list(Inventory& inventory) {
  inventory.weights.push_back(&weight_);
  weight_.list(inventory.params);
  inventory.params.push_back(&bias_);
}

}  // namespace ab
