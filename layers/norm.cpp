// SPDX-License-Identifier: MIT
#include "layers/norm.h"

#include "layers/init.h"

namespace ab {

BatchNorm2d::BatchNorm2d(const std::string& name, std::int64_t channels, const Build& build)
    : name_(name),
      gamma_{name + ".weight", Var(filled({channels}, 1.0f, build.device), true), ParamRole::vector},
      beta_{name + ".bias", Var(filled({channels}, 0.0f, build.device), true), ParamRole::vector},
      stats_{filled({channels}, 0.0f, build.device), filled({channels}, 1.0f, build.device)} {}

Var BatchNorm2d::forward(const Var& x, Activation activation, const Var& residual) {
  return batch_norm(x, gamma_.value, beta_.value, stats_, training(), activation, residual);
}

void BatchNorm2d::list(Inventory& inventory) {
  inventory.params.push_back(&gamma_);
  inventory.params.push_back(&beta_);
  inventory.buffers.push_back({name_ + ".running_mean", stats_.running_mean});
  inventory.buffers.push_back({name_ + ".running_var", stats_.running_var});
}

LayerNorm::LayerNorm(const std::string& name, std::int64_t features, const Build& build)
    : gamma_{name + ".weight", Var(filled({features}, 1.0f, build.device), true), ParamRole::vector},
      beta_{name + ".bias", Var(filled({features}, 0.0f, build.device), true), ParamRole::vector} {}

Var LayerNorm::forward(const Var& x) { return layer_norm(x, gamma_.value, beta_.value); }

void LayerNorm::list(Inventory& inventory) {
  inventory.params.push_back(&gamma_);
  inventory.params.push_back(&beta_);
}

}  // namespace ab
