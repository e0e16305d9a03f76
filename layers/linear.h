#pragma once
// SPDX-License-Identifier: MIT

#include <optional>

#include "engine/backend/backend.h"
#include "layers/init.h"
#include "layers/layer.h"
#include "layers/weight.h"

namespace ab {

/// y = act(x Wᵀ + b), or x Wᵀ + b + addend, with W as it is now, dense or by its factors.
/// x: [..., in], W: [out, in], b: [out] or undefined, addend: [..., out] or undefined
Var affine(const Var& x, const Weight& weight, const Var& bias, Activation activation = Activation::none,
           const Var& addend = {});

struct LinearInit {
  Distribution weight, bias;
};

/// y = x Wᵀ + b      x: [..., in], W: [out, in] (or its factors), b: [out]
class Linear final : public Layer {
 public:
  /// `init`: PyTorch's default, uniform in ±1/sqrt(in), when not given.
  Linear(const std::string& name, std::int64_t in, std::int64_t out, const Build& build,
         ParamRole role = ParamRole::weight, const std::optional<LinearInit>& init = {});
  /// y = act(x Wᵀ + b)
  Var forward(const Var& x, Activation activation) { return affine(x, weight_, bias_.value, activation); }
  Var forward(const Var& x) override { return forward(x, Activation::none); }
  /// y = x Wᵀ + b + addend      addend: [..., out] or undefined
  Var forward(const Var& x, const Var& addend) { return affine(x, weight_, bias_.value, Activation::none, addend); }
  void list(Inventory& inventory) override;

 private:
  Weight weight_;
  Param bias_;
};

}  // namespace ab
