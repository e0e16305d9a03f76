// SPDX-License-Identifier: MIT
#include "layers/linear.h"

#include "engine/ops/elementwise.h"
#include "engine/ops/linear.h"
#include "layers/weight.h"

namespace ab {

Var affine(const Var& x, const Weight& weight, const Var& bias, Activation activation, const Var& addend) {
  AB_ASSERT(!addend.defined() || activation == Activation::none);
  const DType dtype = x.value().dtype();
  const Var b = cast(bias, dtype);
  const auto product = [&](Activation fused, const Var& added) {
    if (!run_factors(weight, x.value().numel() / weight.columns()))
      return linear(x, weight.formed(dtype), b, fused, added);
    const Var thin = linear(x, cast(weight.inner().value, dtype), {});
    return linear(thin, cast(weight.outer().value, dtype), b, fused, added);
  };
  if (!weight.observed()) return product(activation, addend);
  const Var y = weight.observe(product(Activation::none, {}));
  return addend.defined() ? add(addend, y) : activate(y, activation);
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
