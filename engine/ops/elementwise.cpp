// SPDX-License-Identifier: MIT
#include "engine/ops/elementwise.h"

#include "engine/kernels/activation.h"
#include "engine/kernels/elementwise.h"
#include "engine/ops/checks.h"

namespace ab {
namespace {

void check_noise(std::string_view operation, const Tensor& x, float p, const Tensor& seed) {
  AB_CHECK(p >= 0 && p < 1, "{}: the probability {} is not in [0, 1)", operation, p);
  AB_CHECK(seed.defined() && seed.numel() == 1 && seed.dtype() == DType::int64 && seed.device() == x.device(),
           "{}: the seed must be one int64 on the device of x", operation);
}

}  // namespace

// The way back through the activation is all there is to do, and autograd or whoever uses y has done it.
Var activate(const Var& x, Activation activation) {
  if (activation == Activation::none) return x;
  const Tensor y = activation_forward(activation, x.value());
  return record("activate", y, {x}, [](const Tensor& dx) { return Gradients{dx}; },
                {activation, derivative_needs_z(activation) ? x.value() : y});
}

Var relu(const Var& x) { return activate(x, Activation::relu); }
Var gelu(const Var& x) { return activate(x, Activation::gelu); }

Var dropout(const Var& x, float p, const Tensor& seed, std::uint64_t stream) {
  check_noise("dropout", x.value(), p, seed);
  return record("dropout", apply_dropout(x.value(), p, seed, stream), {x},
                [=](const Tensor& dy) { return Gradients{apply_dropout(dy, p, seed, stream)}; });
}

Var drop_path(const Var& x, float p, const Tensor& seed, std::uint64_t stream) {
  check_noise("drop_path", x.value(), p, seed);
  AB_CHECK(x.value().rank() >= 1 && x.value().numel() > 0, "drop_path: x {} must be a batch of samples",
           x.shape().str());
  return record("drop_path", apply_drop_path(x.value(), p, seed, stream), {x},
                [=](const Tensor& dy) { return Gradients{apply_drop_path(dy, p, seed, stream)}; });
}

Var add(const Var& a, const Var& b) {
  AB_CHECK(a.shape() == b.shape(), "add: a {} and b {} must have equal shapes", a.shape().str(), b.shape().str());
  check_alike("add", a.value(), "b", b.value());
  return record("add", add(a.value(), b.value()), {a, b}, [](const Tensor& dy) { return Gradients{dy, dy}; });
}

Var scale(const Var& x, double factor) {
  const auto scaled = [factor](const Tensor& t) {
    const Tensor result = t.clone();
    scale_in_place(result, factor);
    return result;
  };
  return record("scale", scaled(x.value()), {x}, [scaled](const Tensor& dy) { return Gradients{scaled(dy)}; });
}

Var cast(const Var& x, DType dtype) {
  const DType before = x.value().dtype();
  if (!x.defined() || before == dtype) return x;
  Var y =
      record("cast", cast(x.value(), dtype), {x}, [before](const Tensor& dy) { return Gradients{cast(dy, before)}; });
  if (before == DType::float32) y.take_float32_gradient();
  return y;
}

Var reshape(const Var& x, const Shape& shape) {
  Var y = record("reshape", x.value().view(shape), {x},
                 [before = x.shape()](const Tensor& dy) { return Gradients{dy.view(before)}; });
  if (x.takes_float32_gradient()) y.take_float32_gradient();
  return y;
}

Var flatten(const Var& x) {
  AB_CHECK(x.value().rank() >= 1, "flatten: x needs at least one dimension, got {}", x.shape().str());
  const std::int64_t rows = x.shape()[0];
  return reshape(x, Shape{rows, rows == 0 ? 0 : x.value().numel() / rows});
}

}  // namespace ab
