#pragma once
// SPDX-License-Identifier: MIT

#include "engine/ops/norm.h"
#include "layers/conv2d.h"

namespace ab {

struct BatchNormOptions {
  float momentum = 0.1f;  ///< of the running statistics: the share of the present batch
  float epsilon = 1e-5f;
  bool scales = true;  ///< false: gamma stays at one, and is no parameter
};

/// Batch norm over NHWC activations; optionally adds a residual and applies ReLU in the same pass.
class BatchNorm2d final : public Layer {
 public:
  BatchNorm2d(const std::string& name, std::int64_t channels, const Build& build, const BatchNormOptions& options = {});
  /// y = act(norm(x) [+ residual])
  Var forward(const SummedVar& x, Activation activation, const Var& residual = {});
  Var forward(const Var& x) override { return forward(SummedVar{x}, Activation::none); }
  void list(Inventory& inventory) override;

 private:
  std::string name_;
  Param gamma_, beta_;
  BatchNormStats stats_;
};

/// Layer norm over the last dimension.
class LayerNorm final : public Layer {
 public:
  LayerNorm(const std::string& name, std::int64_t features, const Build& build, float epsilon = 1e-5f);
  Var forward(const Var& x) override;
  void list(Inventory& inventory) override;

 private:
  Param gamma_, beta_;
  float epsilon_;
};

}  // namespace ab
