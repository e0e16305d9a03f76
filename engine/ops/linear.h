#pragma once
// SPDX-License-Identifier: MIT
//
// Matrix products: the affine map of a linear layer and the plain product that rebuilds W = A·B.

#include "engine/autograd/var.h"
#include "engine/backend/backend.h"

namespace ab {

/// Which gradients a backward function has to compute; the others come back undefined.
struct LinearNeeds {
  bool dx = true, dw = true, db = true;
};
struct LinearGrads {
  Tensor dx, dw, db;
};

/// y = act(x Wᵀ + b)      x: [..., I], w: [O, I], b: [O] or undefined, y: [..., O]
/// `grad`, where it is given, receives the way back through the activation.
/// In place of an activation there may be an `addend` [..., O], such as what a residual branch ends with: y = x Wᵀ + b + addend.
Tensor linear_forward(const Tensor& x, const Tensor& w, const Tensor& b, Activation activation = Activation::none,
                      ActivationGrad* grad = nullptr, const Tensor& addend = {});
/// From dy, the gradient of x Wᵀ + b:   dx = dy W,  dW = dyᵀ x,  db = column sums of dy
/// Where `of_x` says that x = act(z), dx is the gradient of z: dy W · act'(z).
/// x is read for dW only and w for dx only; what is not needed may be undefined.
LinearGrads linear_backward(const Tensor& dy, const Tensor& x, const Tensor& w, LinearNeeds needs,
                            const ActivationGrad& of_x = {});
Var linear(const Var& x, const Var& w, const Var& b, Activation activation = Activation::none, const Var& addend = {});

/// y = a b      a: [m, k], b: [k, n], y: [m, n];   da = dy bᵀ,  db = aᵀ dy
Var matmul(const Var& a, const Var& b);

}  // namespace ab
