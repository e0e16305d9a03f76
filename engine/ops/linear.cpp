// SPDX-License-Identifier: MIT
#include "engine/ops/linear.h"

#include "engine/kernels/activation.h"
#include "engine/kernels/elementwise.h"
#include "engine/kernels/reduce.h"
#include "engine/ops/checks.h"
#include "engine/ops/flops.h"

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
  count_multiplications(x.numel() * w.dim(0));
  return y;
}

LinearGrads linear_backward(const Tensor& dy, const Tensor& x, const Tensor& w, LinearNeeds needs,
                            const ActivationGrad& of_x) {
  LinearGrads grads;
  if (needs.dx) {
    grads.dx = Tensor(with_features(dy.shape(), w.dim(1)), dy.dtype(), dy.device());
    backend(dy.device()).gemm({}, rows_of(dy), w, rows_of(grads.dx), {.grad = of_x});
    count_multiplications(dy.numel() * w.dim(1));
  }
  if (needs.dw) {
    grads.dw = Tensor(Shape{dy.dim(-1), x.dim(-1)}, backend(dy.device()).weight_gradient_type(dy), dy.device());
    if (needs.db) grads.db = Tensor(Shape{dy.dim(-1)}, dy.dtype(), dy.device());
    backend(dy.device()).gemm_backward_weight(rows_of(dy), rows_of(x), grads.dw, grads.db);
    count_multiplications(dy.numel() * x.dim(-1));
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

Var matmul(const Var& a, const Var& b) {
  const Tensor av = a.value(), bv = b.value();
  AB_CHECK(av.rank() == 2 && bv.rank() == 2 && av.dim(1) == bv.dim(0),
           "matmul: a {} does not fit b {}; expected [m, k] and [k, n]", av.shape().str(), bv.shape().str());
  check_alike("matmul", av, "b", bv);
  const auto product = [](const GemmSpec& spec, const Tensor& x, const Tensor& y, const Shape& shape) {
    const Tensor result(shape, x.dtype(), x.device());
    backend(x.device()).gemm(spec, x, y, result);
    count_multiplications(x.numel() * shape[1]);
    return result;
  };
  const bool needs_da = a.requires_grad(), needs_db = b.requires_grad();
  const Tensor kept_a = needs_db ? av : Tensor{}, kept_b = needs_da ? bv : Tensor{};
  const auto backward = [=, of_a = av.shape(), of_b = bv.shape()](const Tensor& dy) {
    Gradients grads(2);
    if (needs_da) grads[0] = product({.transpose_b = true}, dy, kept_b, of_a);
    if (needs_db) grads[1] = product({.transpose_a = true}, kept_a, dy, of_b);
    return grads;
  };
  return record("matmul", product({}, av, bv, {av.dim(0), bv.dim(1)}), {a, b}, backward);
}

}  // namespace ab
