#pragma once
// SPDX-License-Identifier: MIT

#include "layers/linear.h"

namespace ab {

/// Multi-head self-attention with its projections (Vaswani et al. 2017): x: [N, T, D] -> [N, T, D]
///   y = attention(x W_inᵀ + b_in) W_outᵀ + b_out      W_in: [3D, D], queries, keys and values in one matrix
/// Parameters are called as in torch.nn.MultiheadAttention: in_proj_weight, in_proj_bias, out_proj.*
class SelfAttention final : public Layer {
 public:
  SelfAttention(const std::string& name, std::int64_t features, std::int64_t heads, bool qkv_bias, const Build& build);
  Var forward(const Var& x) override { return forward(x, {}); }
  /// y + addend      addend: [N, T, D] or undefined
  Var forward(const Var& x, const Var& addend);
  void list(Inventory& inventory) override;

 private:
  std::int64_t heads_;
  Weight in_weight_;
  Param in_bias_;  // its value is undefined without a bias
  Linear out_proj_;
};

}  // namespace ab
