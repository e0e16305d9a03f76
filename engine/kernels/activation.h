#pragma once
// SPDX-License-Identifier: MIT
//
// Activations y = act(z), and all that a matrix product or convolution does to its result on the way to memory.
//   relu     y = max(z, 0)                      dz = dy where y > 0
//   gelu     y = z Φ(z), exact (erf)            dz = dy (Φ(z) + z φ(z))
//   dropout  y = x · mask / (1 − p)             dx = dy · mask / (1 − p), mask_i = [uniform_i >= p]
//   drop path  the same with one mask for each sample

#include "engine/core/check.h"
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

/// y = act(z), fresh, or in y, which may be z.
Tensor activation_forward(Activation activation, const Tensor& z);
void activation_forward(Activation activation, const Tensor& z, const Tensor& y);
/// dz = dy · act'(z), fresh, or in dz, which may be dy.
Tensor activation_backward(const ActivationGrad& activation, const Tensor& dy);
void activation_backward(const ActivationGrad& activation, const Tensor& dy, const Tensor& dz);

/// Forward and backward alike: both draw the mask from Philox{seed, stream}. p in [0, 1), seed: [1] int64.
Tensor apply_dropout(const Tensor& x, float p, const Tensor& seed, std::uint64_t stream);
/// The same with number n for all of sample n.   x: [N, ...]
Tensor apply_drop_path(const Tensor& x, float p, const Tensor& seed, std::uint64_t stream);

/// A matrix product or convolution turns its result v, on the way to memory, into activation(v + bias), v + bias + addend or, of a gradient, v · act'(z).
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

/// The epilogue of y = act(z), z = v + bias. Where `grad` is given, it receives the way back through the activation: y itself, or a
/// z that is stored besides.
inline Epilogue forward_epilogue(const Tensor& bias, Activation activation, const Tensor& y, ActivationGrad* grad) {
  if (!grad || activation == Activation::none) return {bias, activation};
  const Tensor z = derivative_needs_z(activation) ? Tensor(y.shape(), y.dtype(), y.device()) : Tensor{};
  *grad = {activation, z.defined() ? z : y};
  return {bias, activation, z};
}

/// The same as a pass of its own, for libraries that cannot do it while they write: y = activation(z), z = v + bias, or y = v + bias + addend, or y = v · act'(z), of the v that lies in
/// epilogue.before_activation(y).      y: [..., C], bias: [C]
void apply_epilogue(const Tensor& y, const Epilogue& epilogue);

}  // namespace ab
