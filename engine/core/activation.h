#pragma once
// SPDX-License-Identifier: MIT
//
// Activations y = act(z) by name, and what leads back through one. Their formulas: engine/kernels/activation.h.

#include "engine/core/tensor.h"

namespace ab {

enum class Activation { none, relu, gelu };

/// The way back through y = act(z): dz = dy · act'(z). A ReLU sees its derivative in y, a GELU in z.
struct ActivationGrad {
  Activation activation = Activation::none;
  Tensor saved = {};  ///< y of a ReLU, z of a GELU

  bool defined() const { return activation != Activation::none; }
};

}  // namespace ab
