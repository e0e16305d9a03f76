// SPDX-License-Identifier: MIT
#include "engine/ops/linear.h"

#include "engine/kernels/activation.h"
#include "engine/kernels/elementwise.h"
#include "engine/kernels/reduce.h"
#include "engine/ops/checks.h"

namespace ab {
namespace {

/// [..., I] as a matrix.
Tensor rows_of(const Tensor& t) { return t.view({t.dim(-1) == 0 ? 0 : t.numel() / t.dim(-1), t.dim(-1)}); }

/// The shape of x with a different last dimension.
Shape with_features(Shape shape, std::int64_t features) {
  shape[shape.rank() - 1] = features;
  return shape;
}

}  // namespace

Tensor linear_forward(const Tensor& x, const Tensor& w, const Tensor& b, Activation activation, ActivationGrad* grad,
                      const Tensor& addend) {
  AB_CHECK(x.rank() >= 2 && w.rank() == 2 && x.dim(-1) == w.dim(1),
           "linear: x {} does not fit w {}; expected [..., I] and [O, I]", x.shape().str(), w.shape().str());
  check_alike("linear", x, "w", w);
  if (b.defined()) {
    AB_CHECK(b.numel() == w.dim(0), "linear: b {} does not fit w {}; expected [O] and [O, I]", b.shape().str(),
             w.shape().str());
    check_alike("linear", x, "b", b);
  }
  const Tensor y(with_features(x.shape(), w.dim(0)), x.dtype(), x.device());
  Epilogue epilogue = forward_epilogue(b, activation, y, grad);
  if (addend.defined()) {
    AB_CHECK(addend.shape() == y.shape() && activation == Activation::none, "linear: {} cannot be added to a result {}",
             addend.shape().str(), y.shape().str());
    check_alike("linear", x, "the addend", addend);
    epilogue.addend = rows_of(addend);
  }
  backend(x.device()).gemm({.transpose_b = true}, rows_of(x), w, rows_of(y), epilogue);
  return y;
}

LinearGrads linear_backward(const Tensor& dy, const Tensor& x, const Tensor& w, LinearNeeds needs,
                            const ActivationGrad& of_x) {
  LinearGrads grads;
  if (needs.dx) {
    grads.dx = Tensor(with_features(dy.shape(), w.dim(1)), dy.dtype(), dy.device());
    backend(dy.device()).gemm({}, rows_of(dy), w, rows_of(grads.dx), {.grad = of_x});
  }
  if (needs.dw) {
    grads.dw = Tensor(Shape{dy.dim(-1), x.dim(-1)}, backend(dy.device()).weight_gradient_type(dy), dy.device());
    if (needs.db) grads.db = Tensor(Shape{dy.dim(-1)}, dy.dtype(), dy.device());
    backend(dy.device()).gemm_backward_weight(rows_of(dy), rows_of(x), grads.dw, grads.db);
  } else if (needs.db) {
    grads.db = column_sums(dy);
  }
  return grads;
}

Var linear(const Var& x, const Var& w, const Var& b, Activation activation, const Var& addend) {
  const LinearNeeds needs{x.requires_grad(), w.requires_grad(), b.requires_grad()};
  // Nothing is kept alive that no gradient will need.
  const Tensor kept_x = needs.dw ? x.value() : Tensor{}, kept_w = needs.dx ? w.value() : Tensor{};
  const ActivationGrad of_x = needs.dx ? x.activation_grad() : ActivationGrad{};
  ActivationGrad of_y;
  const bool is_recorded = recording() && (needs.dx || needs.dw || needs.db);
  const Tensor y =
      linear_forward(x.value(), w.value(), b.value(), activation, is_recorded ? &of_y : nullptr, addend.value());
  const auto backward = [=, has_addend = addend.defined(), wide = w.takes_float32_gradient()](const Tensor& dy) {
    LinearGrads grads = linear_backward(dy, kept_x, kept_w, needs, of_x);
    if (needs.dw && !wide) grads.dw = cast(grads.dw, dy.dtype());
    return Gradients{of_z(grads.dx), grads.dw, grads.db, has_addend ? dy : Tensor{}};
  };
  return record("linear", y, {x, w, b, addend}, backward, of_y);
}

Tensor matmul_forward(const Tensor& a, const Tensor& b) {
  AB_CHECK(a.rank() == 2 && b.rank() == 2 && a.dim(1) == b.dim(0),
           "matmul: a {} does not fit b {}; expected [m, k] and [k, n]", a.shape().str(), b.shape().str());
  check_alike("matmul", a, "b", b);
  const Tensor y(Shape{a.dim(0), b.dim(1)}, a.dtype(), a.device());
  backend(a.device()).gemm({}, a, b, y);
  return y;
}

MatmulGrads matmul_backward(const Tensor& dy, const Tensor& a, const Tensor& b, MatmulNeeds needs) {
  MatmulGrads grads;
  if (needs.da) {
    grads.da = Tensor(Shape{dy.dim(0), b.dim(0)}, dy.dtype(), dy.device());
    backend(dy.device()).gemm({.transpose_b = true}, dy, b, grads.da);
  }
  if (needs.db) {
    grads.db = Tensor(Shape{a.dim(1), dy.dim(1)}, dy.dtype(), dy.device());
    backend(dy.device()).gemm({.transpose_a = true}, a, dy, grads.db);
  }
  return grads;
}

Var matmul(const Var& a, const Var& b) {
  const MatmulNeeds needs{a.requires_grad(), b.requires_grad()};
  const Tensor kept_a = needs.db ? a.value() : Tensor{}, kept_b = needs.da ? b.value() : Tensor{};
  return record("matmul", matmul_forward(a.value(), b.value()), {a, b}, [=](const Tensor& dy) {
    MatmulGrads grads = matmul_backward(dy, kept_a, kept_b, needs);
    return Gradients{grads.da, grads.db};
  });
}

}  // namespace ab
