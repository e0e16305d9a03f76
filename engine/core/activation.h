#pragma once
// SPDX-License-Identifier: MIT
//
// Activations y = act(z) by name, and what their gradients need. Their formulas: engine/kernels/activation.h.

#include "engine/core/tensor.h"

namespace ab {

/// Always used in a switch without a default, so that the compiler names the places that a new one needs.
enum class Activation { none, relu, gelu };

/// Whether act'(z) cannot be told from y = act(z).
constexpr bool derivative_needs_z(Activation activation) {
  switch (activation) {
    case Activation::none:
    case Activation::relu: return false;
    case Activation::gelu: return true;
  }
  return true;
}

/// The gradient of y = act(z): dz = dy · act'(z).
struct ActivationGrad {
  Activation activation = Activation::none;
  Tensor saved = {};  ///< z where derivative_needs_z(), otherwise y

  bool defined() const { return activation != Activation::none; }
};

}  // namespace ab
