#pragma once
// SPDX-License-Identifier: MIT

#include "engine/ops/conv.h"
#include "layers/linear.h"

namespace ab {

/// y = x ⋆ W [+ b]      x: [N, H, W, in], W: [out, k, k, in / groups] (or its factors)
/// A factored convolution is a k×k convolution to r channels and a 1×1 convolution to the output.
class Conv2d final : public Layer {
 public:
  /// `init` of the weight: He et al.'s, kaiming_normal_fan_out(), when not given. The bias starts at zero.
  Conv2d(const std::string& name, std::int64_t in, std::int64_t out, std::int64_t kernel, const Conv2dOptions& options,
         bool with_bias, const Build& build, ParamRole role = ParamRole::weight,
         const std::optional<Distribution>& init = {});
  /// y = act(x ⋆ W [+ b])
  Var forward(const Var& x, Activation activation);
  Var forward(const Var& x) override { return forward(x, Activation::none); }
  void list(Inventory& inventory) override;

 private:
  Conv2d(const std::string& name, const Shape& shape, const Conv2dOptions& options, bool with_bias, const Build& build,
         ParamRole role, const std::optional<Distribution>& init);

  Weight weight_;
  Param bias_;  // its value is undefined without a bias
  Conv2dOptions options_;
};

}  // namespace ab
