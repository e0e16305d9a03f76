// SPDX-License-Identifier: MIT
#include "engine/ops/shape.h"

namespace ab {

Var reshape(const Var& x, const Shape& shape) {
  return record("reshape", x.value().view(shape), {x},
                [before = x.shape()](const Tensor& dy) { return Gradients{dy.view(before)}; });
}

Var flatten(const Var& x) {
  AB_CHECK(x.value().rank() >= 1, "flatten: x needs at least one dimension, got {}", x.shape().str());
  const std::int64_t rows = x.shape()[0];
  return reshape(x, Shape{rows, rows == 0 ? 0 : x.value().numel() / rows});
}

}  // namespace ab
