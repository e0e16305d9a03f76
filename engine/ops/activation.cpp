// SPDX-License-Identifier: MIT
#include "engine/ops/activation.h"

#include "engine/kernels/activation.h"
#include "engine/kernels/elementwise.h"
#include "engine/ops/checks.h"

namespace ab {

Var relu(const Var& x) {
  const Tensor y = relu_forward(x.value());
  return record("relu", y, {x}, [y](const Tensor& dy) { return Gradients{relu_backward(dy, y)}; });
}

Var gelu(const Var& x) {
  return record("gelu", gelu_forward(x.value()), {x},
                [input = x.value()](const Tensor& dy) { return Gradients{gelu_backward(dy, input)}; });
}

Var dropout(const Var& x, float p, Philox random) {
  AB_CHECK(p >= 0 && p < 1, "dropout: the probability {} is not in [0, 1)", p);
  return record("dropout", apply_dropout(x.value(), p, random), {x},
                [p, random](const Tensor& dy) { return Gradients{apply_dropout(dy, p, random)}; });
}

Var drop_path(const Var& x, float p, Philox random) {
  AB_CHECK(p >= 0 && p < 1, "drop_path: the probability {} is not in [0, 1)", p);
  AB_CHECK(x.value().rank() >= 1 && x.value().numel() > 0, "drop_path: x {} must be a batch of samples",
           x.shape().str());
  return record("drop_path", apply_drop_path(x.value(), p, random), {x},
                [p, random](const Tensor& dy) { return Gradients{apply_drop_path(dy, p, random)}; });
}

Var add(const Var& a, const Var& b) {
  AB_CHECK(a.shape() == b.shape(), "add: a {} and b {} must have equal shapes", a.shape().str(),
           b.shape().str());
  check_alike("add", a.value(), "b", b.value());
  const bool both = a.requires_grad() && b.requires_grad();
  // da = db = dy, in separate storage: a gradient of a parameter may be changed in place later.
  return record("add", add(a.value(), b.value()), {a, b}, [both](const Tensor& dy) {
    return Gradients{dy, both ? dy.clone() : dy};
  });
}

Var cast(const Var& x, DType dtype) {
  const DType before = x.value().dtype();
  if (!x.defined() || before == dtype) return x;
  return record("cast", cast(x.value(), dtype), {x},
                [before](const Tensor& dy) { return Gradients{cast(dy, before)}; });
}

}  // namespace ab
