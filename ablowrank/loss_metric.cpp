// SPDX-License-Identifier: MIT
#include "ablowrank/loss_metric.h"

#include <algorithm>
#include <cmath>

#include "ablowrank/factorise.h"
#include "engine/backend/symmetric_eigen.h"
#include "engine/core/check.h"
#include "engine/kernels/elementwise.h"

namespace ab {
namespace {

constexpr double kDamping = 1e-2;  // of a channel's own curvature
constexpr double kTiny = 1e-9;     // of the mean one: for channels that no gradient reaches

Tensor in_float64(const Tensor& t) { return cast(t.to(Device{}), DType::float64); }

/// G: the mean over samples, damped.   [O, O]
Tensor damped_curvature(const OutputMoments& moments, double gradient_scale) {
  const double samples = std::max(1.0, moments.samples().item());
  const Tensor g = in_float64(moments.gradients()).clone();
  scale_in_place(g, 1 / (samples * gradient_scale * gradient_scale));
  const std::int64_t n = g.dim(0);
  double trace = 0;
  for (std::int64_t i = 0; i < n; ++i) trace += g.data<double>()[i * n + i];
  const double tiny = trace > 0 ? kTiny * trace / static_cast<double>(n) : 1;
  for (std::int64_t i = 0; i < n; ++i)
    g.data<double>()[i * n + i] = (1 + kDamping) * g.data<double>()[i * n + i] + tiny;
  return g;
}

Tensor covariance(const OutputMoments& moments) {
  const Tensor c = in_float64(moments.outputs()).clone();
  scale_in_place(c, 1 / std::max(1.0, moments.positions().item()));
  return c;
}

/// A^power for a symmetric positive definite A, given by its eigenvectors.
Tensor power_of(const SymmetricEigen& a, double power) {
  const Tensor scaled = a.vectors.clone();
  const std::int64_t n = scaled.dim(0);
  const double least = 1e-14 * std::max(a.values.front(), 1e-300);  // what rounding makes of zero
  for (std::int64_t i = 0; i < n; ++i) {
    const double factor = std::pow(std::max(a.values[static_cast<std::size_t>(i)], least), power);
    std::for_each(scaled.data<double>() + i * n, scaled.data<double>() + (i + 1) * n, [&](double& v) { v *= factor; });
  }
  return product(a.vectors, scaled, true, false);
}

}  // namespace

LossMetric::LossMetric(const OutputMoments& moments, double gradient_scale)
    : mean_(in_float64(moments.output_sum()).clone().view({-1, 1})) {
  const Tensor all = in_float64(moments.sums());
  AB_CHECK_KIND(
      numerics,
      std::all_of(all.span<double>().begin(), all.span<double>().end(), [](double v) { return std::isfinite(v); }),
      "the outputs of a weight are too large to be added up; lower the learning rate");
  scale_in_place(mean_, 1 / std::max(1.0, moments.positions().item()));
  const SymmetricEigen curvature = symmetric_eigen(damped_curvature(moments, gradient_scale));
  const Tensor root = power_of(curvature, 0.5), inverse_root = power_of(curvature, -0.5);
  const SymmetricEigen s = symmetric_eigen(product(product(root, covariance(moments)), root));
  for (const double value : s.values) increases_.push_back(0.5 * std::max(value, 0.0));
  to_directions_ = product(s.vectors, root);
  to_outputs_ = product(s.vectors, inverse_root);  // G^-½ is symmetric
}

Tensor LossMetric::project(const Tensor& m, std::int64_t r) const {
  return product(to_outputs_.slice(0, r), product(to_directions_.slice(0, r), m), true, false);
}

Tensor LossMetric::projected(const Tensor& weight, std::int64_t r) const {
  const Tensor w2 = in_float64(weight.view({weight.dim(0), -1}));
  return cast(project(w2, r), DType::float32).to(weight.device());
}

Tensor LossMetric::bias_change(const Tensor& bias, std::int64_t r) const {
  const Tensor change = mean_.clone();
  axpy(-1.0, in_float64(bias).view({-1, 1}), change);
  axpy(-1.0, project(change.clone(), r), change);
  return cast(change, DType::float32).view({-1});
}

double positions_per_sample(const OutputMoments& moments) {
  return moments.positions().item() / std::max(1.0, moments.samples().item());
}

}  // namespace ab
