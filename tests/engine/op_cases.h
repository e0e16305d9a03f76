#pragma once
// SPDX-License-Identifier: MIT
//
// One list of calls for everything that has to hold for every operation: op_test runs each case against its
// reference, against finite differences, in 16-bit types and on the GPU; op_bench times the large ones.
// A new operation gets its cases here; op_test fails while it has none.

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "engine/autograd/var.h"
#include "engine/core/random.h"

namespace ab::cases {

using Values = std::vector<double>;

struct OpCase {
  std::string op;    ///< the name that the operation gives to record()
  std::string name;  ///< unique: "conv2d/stride2"
  std::vector<Shape> inputs;
  /// The call, for inputs of any floating-point type on any device.
  std::function<Var(const std::vector<Var>&)> apply = {};
  /// The same in double, by definition.
  std::function<Values(const std::vector<Values>&)> reference = {};
  /// Largest error in float32, relative to the largest value of the result.
  double tolerance = 1e-5;
  /// How often numbers are rounded to a 16-bit type on the longest way from the inputs to a result or a gradient.
  int roundings = 1;
  /// Multiply-adds (matrix products, convolutions) or elements touched in one forward call.
  double work = 0;
};

/// Small shapes with every corner that an operation has.
std::vector<OpCase> op_cases();
/// Shapes of real training, from the same makers.
std::vector<OpCase> large_op_cases();

/// What op_cases_transformer.cpp adds to the two lists.
std::vector<OpCase> transformer_op_cases();
std::vector<OpCase> large_transformer_op_cases();
/// And op_cases_residual.cpp.
std::vector<OpCase> residual_op_cases();
std::vector<OpCase> large_residual_op_cases();

/// How a test names its case when it fails.
inline void PrintTo(const OpCase& c, std::ostream* out) { *out << c.name; }

/// Reproducible normal values for input number `index` of a case.
Tensor input_values(const Shape& shape, DType dtype, std::size_t index);

/// The seed as operations that draw read it, where x is.
inline Tensor seed_on_device(const Philox& random, const Var& x) {
  return Tensor::from(std::vector{static_cast<std::int64_t>(random.seed)}, {1}, x.value().device());
}

}  // namespace ab::cases
