#pragma once
// SPDX-License-Identifier: MIT
//
// The end of a product or convolution with an activation, forward.

#include "engine/backend/backend.h"

namespace ab {

/// y = act(z), z = v + bias. Where `grad` is given, it receives the way back through the activation: y itself, or a
/// z that is stored besides.
inline Epilogue forward_epilogue(const Tensor& bias, Activation activation, const Tensor& y, ActivationGrad* grad) {
  if (!grad || activation == Activation::none) return {bias, activation};
  const Tensor z = derivative_needs_z(activation) ? Tensor(y.shape(), y.dtype(), y.device()) : Tensor{};
  *grad = {activation, z.defined() ? z : y};
  return {bias, activation, z};
}

}  // namespace ab
