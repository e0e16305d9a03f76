#pragma once
// SPDX-License-Identifier: MIT
//
// Tensors to test with, and the distance between two of them.

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "engine/core/random.h"
#include "engine/core/tensor.h"
#include "engine/kernels/elementwise.h"

namespace ab {

inline constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

/// Standard normal float32 values; the same for the same stream.
inline Tensor normal_values(const Shape& shape, std::uint64_t stream) {
  const Tensor t(shape);
  const Philox random{7, stream};
  for (std::int64_t i = 0; i < t.numel(); ++i) t.data<float>()[i] = random.normal(static_cast<std::uint64_t>(i));
  return t;
}

/// NaN everywhere: an element that an operation forgets to write, or reads before, shows in the result.
inline Tensor poisoned(const Shape& shape, DType dtype = DType::float32) {
  const Tensor t(shape, dtype);
  dispatch_float(dtype, "poisoned", [&]<class T>() { std::fill_n(t.data<T>(), t.numel(), static_cast<T>(kNaN)); });
  return t;
}

/// ‖a − b‖ / ‖b‖ in the Euclidean norm.
inline double relative_error(const Tensor& a, const Tensor& b) {
  const std::vector<double> x = a.to_doubles(), y = b.to_doubles();
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    difference += (x[i] - y[i]) * (x[i] - y[i]);
    norm += y[i] * y[i];
  }
  return std::sqrt(difference / norm);
}

}  // namespace ab
