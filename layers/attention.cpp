// SPDX-License-Identifier: MIT
#include "layers/attention.h"

#include "engine/ops/attention.h"

namespace ab {

SelfAttention::SelfAttention(const std::string& name, std::int64_t features, std::int64_t heads, bool qkv_bias,
                             const Build& build)
    : heads_(heads),
      in_weight_(name + ".in_proj_weight",
                 initial_value(name + ".in_proj_weight", {3 * features, features},
                               xavier_uniform(features, 3 * features), build),
                 ParamRole::weight),
      in_bias_{name + ".in_proj_bias", qkv_bias ? Var(filled({3 * features}, 0.0f, build.device), true) : Var(),
               ParamRole::vector},
      out_proj_(name + ".out_proj", features, features, build, ParamRole::weight,
                LinearInit{.weight = uniform_fan_in(features), .bias = {}}) {}

Var SelfAttention::forward(const Var& x, const Var& addend) {
  return out_proj_.forward(attention(affine(x, in_weight_, in_bias_.value), heads_), addend);
}

void SelfAttention::list(Inventory& inventory) {
  inventory.weights.push_back(&in_weight_);
  in_weight_.list(inventory.params);
  if (in_bias_.value.defined()) inventory.params.push_back(&in_bias_);
  out_proj_.list(inventory);
}

}  // namespace ab
