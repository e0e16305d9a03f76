#pragma once
// SPDX-License-Identifier: MIT

#include <optional>

#include "layers/init.h"
#include "layers/layer.h"
#include "layers/weight.h"

namespace ab {

/// y = x Wᵀ + b with W as it is now, dense or by its factors.   x: [..., in], W: [out, in], b: [out] or undefined
Var affine(const Var& x, const Weight& weight, const Var& bias);

struct LinearInit {
  Distribution weight, bias;
};

/// y = x Wᵀ + b      x: [..., in], W: [out, in] (or its factors), b: [out]
class Linear final : public Layer {
 public:
  /// `init`: PyTorch's default, uniform in ±1/sqrt(in), when not given.
  Linear(const std::string& name, std::int64_t in, std::int64_t out, const Build& build,
         ParamRole role = ParamRole::weight, const std::optional<LinearInit>& init = {});
  Var forward(const Var& x) override { return affine(x, weight_, bias_.value); }
  void list(Inventory& inventory) override;

 private:
  Weight weight_;
  Param bias_;
};

}  // namespace ab
