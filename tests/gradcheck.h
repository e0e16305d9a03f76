#pragma once
// SPDX-License-Identifier: MIT
//
// Checks backward() against central differences in float64:
//   (L(x + h e_i) − L(x − h e_i)) / 2h  ≈  dL/dx_i,   L = Σ_j c_j f(x)_j with fixed random c

#include <cmath>
#include <functional>
#include <string>

#include "engine/autograd/var.h"
#include "engine/core/random.h"

namespace ab {

/// The largest disagreement: |difference − gradient| / max(1, |difference|, |gradient|).
struct GradcheckResult {
  double worst = 0;
  std::size_t input = 0;     ///< which input
  std::int64_t element = 0;  ///< which of its elements
  double expected = 0;       ///< from differences
  double got = 0;            ///< from backward()

  std::string str() const {
    return fmt::format("input {}, element {}: differences give {:.10g}, backward {:.10g}, relative error {:.2e}", input,
                       element, expected, got, worst);
  }
};

namespace detail {

/// L = Σ c_j y_j as a recorded operation, so that f may return any shape.
inline Var weighted_sum(const Var& y) {
  const Philox random{.seed = 20240502};
  Tensor weights(y.shape(), DType::float64);
  double sum = 0;
  for (std::int64_t j = 0; j < weights.numel(); ++j) {
    weights.data<double>()[j] = random.normal(static_cast<std::uint64_t>(j));
    sum += weights.data<double>()[j] * y.value().data<double>()[j];
  }
  return record("weighted_sum", Tensor::scalar(sum, DType::float64), {y}, [weights](const Tensor& dloss) {
    Tensor dy = weights.clone();
    for (double& v : dy.span<double>()) v *= dloss.item();
    return Gradients{dy};
  });
}

}  // namespace detail

/// `f` maps float64 host Vars to one Var and must be deterministic. Inputs that do not require a gradient are
/// held fixed, and their gradient must stay undefined. For each other input, at most `most_elements` scattered
/// elements are checked; every one costs two calls of f.
inline GradcheckResult gradcheck(const std::function<Var(const std::vector<Var>&)>& f, std::vector<Var> inputs,
                                 double step = 1e-5, std::int64_t most_elements = 64) {
  for (Var& input : inputs) input.clear_grad();
  backward(detail::weighted_sum(f(inputs)));

  GradcheckResult result;
  const NoGradScope no_grad;
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    if (!inputs[k].requires_grad()) {
      AB_CHECK(!inputs[k].grad().defined(), "gradcheck: input {} is fixed but received a gradient", k);
      continue;
    }
    AB_CHECK(inputs[k].grad().defined(), "gradcheck: input {} received no gradient", k);
    const std::int64_t elements = inputs[k].value().numel();
    for (std::int64_t n = 0; n < std::min(elements, most_elements); ++n) {
      const std::int64_t i = n * 7919 % elements;  // a prime step: all channels and positions get their share
      double& x = inputs[k].value().data<double>()[i];
      const double before = x;
      x = before + step;
      const double above = detail::weighted_sum(f(inputs)).value().item();
      x = before - step;
      const double below = detail::weighted_sum(f(inputs)).value().item();
      x = before;
      const double expected = (above - below) / (2 * step), got = inputs[k].grad().data<double>()[i];
      const double error = std::abs(expected - got) / std::fmax(1, std::fmax(std::abs(expected), std::abs(got)));
      if (!(error <= result.worst)) result = {error, k, i, expected, got};  // NaN counts as the worst
      if (std::isnan(error)) return result;
    }
  }
  return result;
}

}  // namespace ab
