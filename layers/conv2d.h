#pragma once
// SPDX-License-Identifier: MIT

#include "engine/ops/conv.h"
#include "layers/linear.h"

namespace ab {

/// The result of a convolution and, where they came with it, its sums per channel for a batch norm behind it.
struct SummedVar {
  Var y;
  Tensor sums = {};  ///< Σ y and Σ y², [2, C] float32, or undefined
};

/// y = x ⋆ W [+ b]      x: [N, H, W, in], W: [out, k, k, in / groups] (or its factors)
/// A factored convolution is two: k×k to r channels and 1×1 to the output, or 1×k and k×1 (ConvFactors).
class Conv2d final : public Layer {
 public:
  /// `init` of the weight: He et al.'s, kaiming_normal(), when not given. The bias starts at zero.
  Conv2d(const std::string& name, std::int64_t in, std::int64_t out, std::int64_t kernel, const Conv2dOptions& options,
         bool with_bias, const Build& build, ParamRole role = ParamRole::weight,
         const std::optional<Distribution>& init = {});
  /// y = act(x ⋆ W [+ b])
  Var forward(const Var& x, Activation activation) { return apply(x, activation, nullptr); }
  Var forward(const Var& x) override { return forward(x, Activation::none); }
  /// For a batch norm: in training, y may bring the sums along that it needs.
  SummedVar forward_summed(const Var& x);
  void list(Inventory& inventory) override;

 private:
  Var apply(const Var& x, Activation activation, Tensor* sums);
  /// As two convolutions, x ⋆ inner and then ⋆ outer + b.
  Var apply_factors(const Var& x, const Var& bias, Activation activation, Tensor* sums);
  /// y, seen by the observer of the weight: for spatial factors what each row of the kernel adds to it.
  Var observe(const Var& x, const Var& y, const Conv2dSpec& spec);
  Conv2dOptions of_kernel_rows() const;
  bool is_spatial() const { return weight_.conv_factors() == ConvFactors::spatial; }

  Weight weight_;
  Param bias_;  // its value is undefined without a bias
  Conv2dOptions options_;
};

}  // namespace ab
