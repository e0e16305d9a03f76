#pragma once
// SPDX-License-Identifier: MIT
//
// What a matrix product or convolution does to its result on the way to memory; and the same as a pass of its own, for
// libraries that cannot do it while they write.

#include "engine/core/activation.h"
#include "engine/core/check.h"

namespace ab {

/// What becomes of a result v on its way to memory: activation(v + bias), v + bias + addend or, of a gradient, v · act'(z).
struct Epilogue {
  Tensor bias = {};  ///< one value per column or output channel; may be undefined
  Activation activation = Activation::none;
  Tensor z = {};             ///< receives v + bias, which the activation is applied to; may be undefined
  ActivationGrad grad = {};  ///< multiplies by act'(z); without the others
  Tensor addend = {};        ///< of the result's size; without an activation and its z

  bool is_identity() const {
    return !bias.defined() && activation == Activation::none && !grad.defined() && !addend.defined();
  }
  /// Asserts that what excludes each other is not there together, and that an addend fits the result.
  void check(const Tensor& result) const {
    AB_ASSERT(!grad.defined() || (!bias.defined() && activation == Activation::none));
    if (!addend.defined()) return;
    AB_ASSERT(!grad.defined() && activation == Activation::none && !z.defined() && addend.numel() == result.numel());
  }
  Epilogue without_bias() const { return {.activation = activation, .z = z, .grad = grad, .addend = addend}; }
  /// Where v waits for its activation, if that is a pass of its own: in z or in the result itself.
  Tensor before_activation(const Tensor& result) const { return z.defined() ? z.view(result.shape()) : result; }
};

/// y = activation(z), z = v + bias, or y = v + bias + addend, or y = v · act'(z), of the v that lies in
/// epilogue.before_activation(y).      y: [..., C], bias: [C]
void apply_epilogue(const Tensor& y, const Epilogue& epilogue);

}  // namespace ab
