#pragma once
// SPDX-License-Identifier: MIT
//
// Mixed precision (Micikevicius et al. 2018), much as PyTorch's autocast. Weights, their gradients and optimizer state
// are float32, and so are decompositions and joins. Images are cast to activation_type(), and every layer computes in
// the type of its input: it casts its weights to that for each use, and their gradients come back as float32 through
// the cast. Inside, norms, softmax and loss compute in float32 and sums are taken in it; what goes from layer to layer
// is of the short type, layer norms and residual sums included (autocast leaves these two in float32).

#include <string>
#include <vector>

#include "engine/core/dtype.h"

namespace ab {

enum class Precision {
  fp32,
  tf32,  ///< float32 of which a GPU multiplies the leading 11 bits only; on a CPU the same as fp32
  bf16,
  fp16,  ///< needs a scaled loss: engine/optim/loss_scale.h
};

/// Their names on a command line, in this order.
const std::vector<std::string>& precision_names();
/// Throws Error(config) when there is none of that name.
Precision precision_named(const std::string& name);

constexpr DType activation_type(Precision precision) {
  switch (precision) {
    case Precision::fp32:
    case Precision::tf32: break;
    case Precision::bf16: return DType::bfloat16;
    case Precision::fp16: return DType::float16;
  }
  return DType::float32;
}

/// Whether a GPU may multiply float32 as TF32 for this thread (default: no).
bool tf32_allowed();

/// Allows it for a scope: forward and backward passes, but not decompositions and joins.
class Tf32Scope {
 public:
  explicit Tf32Scope(Precision precision);
  ~Tf32Scope();
  Tf32Scope(const Tf32Scope&) = delete;
  Tf32Scope& operator=(const Tf32Scope&) = delete;

 private:
  bool before_;
};

}  // namespace ab
