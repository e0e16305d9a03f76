// SPDX-License-Identifier: MIT
#include "layers/norm.h"

namespace ab {

BatchNorm2d::BatchNorm2d(const std::string& name, std::int64_t channels, const Build& build,
                         const BatchNormOptions& options)
    : name_(name),
      gamma_{name + ".weight", Var(filled({channels}, 1.0f, build.device), options.scales), ParamRole::vector},
      beta_{name + ".bias", Var(filled({channels}, 0.0f, build.device), true), ParamRole::vector},
      stats_{filled({channels}, 0.0f, build.device), filled({channels}, 1.0f, build.device), options.momentum,
             options.epsilon} {}

Var BatchNorm2d::forward(const SummedVar& x, Activation activation, const Var& residual) {
  return batch_norm(x.y, gamma_.value, beta_.value, stats_, training(), activation, residual, x.sums);
}

void BatchNorm2d::list(Inventory& inventory) {
  if (gamma_.trainable()) inventory.params.push_back(&gamma_);
  inventory.params.push_back(&beta_);
  inventory.buffers.push_back({name_ + ".running_mean", stats_.running_mean});
  inventory.buffers.push_back({name_ + ".running_var", stats_.running_var});
  inventory.batch_norms.push_back(&stats_);
}

LayerNorm::LayerNorm(const std::string& name, std::int64_t features, const Build& build, float epsilon)
    : gamma_{name + ".weight", Var(filled({features}, 1.0f, build.device), true), ParamRole::vector},
      beta_{name + ".bias", Var(filled({features}, 0.0f, build.device), true), ParamRole::vector},
      epsilon_(epsilon) {}

Var LayerNorm::forward(const Var& x) { return layer_norm(x, gamma_.value, beta_.value, epsilon_); }

void LayerNorm::list(Inventory& inventory) {
  inventory.params.push_back(&gamma_);
  inventory.params.push_back(&beta_);
}

}  // namespace ab
