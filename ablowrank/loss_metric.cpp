// SPDX-License-Identifier: MIT
#include "ablowrank/loss_metric.h"

#include <algorithm>
#include <cmath>

#include "engine/backend/factorisations.h"
#include "engine/core/check.h"
#include "engine/kernels/elementwise.h"

namespace ab {
namespace {

constexpr double kDamping = 1e-2;  // of a channel's own curvature
constexpr double kTiny = 1e-12;    // of the largest one: for channels that no gradient reaches

/// t · scale_i · scale_j, element by element.   t: [O, O] float32; the result float64 on the host
Tensor scaled(const Tensor& t, double factor, const std::vector<double>& scale) {
  const Tensor result = in_float64(t).clone();
  double* at = result.data<double>();
  for (const double row : scale)
    for (const double column : scale) *at++ *= factor * row * column;
  return result;
}

/// The square root of every channel's own curvature: in units of its inverse G has ones on its diagonal.
std::vector<double> channel_scales(const Tensor& gradients, double factor) {
  const std::vector<double> g = gradients.to_doubles();
  const auto n = static_cast<std::size_t>(gradients.dim(0));
  std::vector<double> scales;
  for (std::size_t i = 0; i < n; ++i) scales.push_back(factor * g[i * n + i]);
  const double largest = *std::max_element(scales.begin(), scales.end());
  for (double& v : scales) v = largest > 0 ? std::sqrt(std::max(v, kTiny * largest)) : 1;
  return scales;
}

std::vector<double> inverse(std::vector<double> values) {
  for (double& v : values) v = 1 / v;
  return values;
}

/// m · diag(scale), in place.   m: [O, O] float64
void scale_columns_of(const Tensor& m, const std::vector<double>& scale) {
  double* at = m.data<double>();
  for (std::int64_t row = 0; row < m.dim(0); ++row)
    for (const double s : scale) *at++ *= s;
}

}  // namespace

LossMetric::LossMetric(const OutputMoments& moments) : mean_(in_float64(moments.output_sum()).clone().view({-1, 1})) {
  const double positions = moments.positions().item(1);
  scale_in_place(mean_, 1 / positions);
  if (mean_.device().kind == DeviceKind::shapes) {
    take_shapes();
    return;
  }

  // With D = diag(channel scales): outputs D y, gradients D⁻¹ g, so that channels of any scale are alike.
  const double factor = 1 / moments.gradient_weight().item();
  const std::vector<double> scales = channel_scales(moments.gradients(), factor), inverse_scales = inverse(scales);
  const Tensor g = scaled(moments.gradients(), factor, inverse_scales);
  const Tensor c = scaled(moments.outputs(), 1 / positions, scales);
  for (std::int64_t i = 0; i < g.dim(0); ++i) g.data<double>()[i * g.dim(0) + i] += kDamping;
  const Cholesky root = cholesky(g);
  const SymmetricEigen s = symmetric_eigen(product(product(root.lower, c, true, false), root.lower));
  for (const double value : s.values) increases_.push_back(0.5 * std::max(value, 0.0));
  to_directions_ = product(s.vectors, root.lower, false, true);
  to_outputs_ = product(s.vectors, root.inverse);
  scale_columns_of(to_directions_, scales);
  scale_columns_of(to_outputs_, inverse_scales);
}

/// Bytes of a CPU's memory that a metric takes, in a rehearsal.
void LossMetric::take_shapes() {
  const std::int64_t o = mean_.dim(0);
  const auto square = [&] { return Tensor({o, o}, DType::float64, mean_.device()); };
  const Tensor g = square(), c = square(), lower = square(), inverse = square(), vectors = square();
  increases_.assign(static_cast<std::size_t>(o), 0);
  to_directions_ = square();
  to_outputs_ = square();
}

// With Q an orthonormal basis of P's image, P·W2 = Q·core, and the decomposition of the thin core is that of P·W2.
LowRank LossMetric::cut(const Tensor& w2, std::int64_t r) const {
  const Tensor outputs = transpose(to_outputs_.slice(0, r));
  const Tensor basis = outputs.device().kind == DeviceKind::shapes ? outputs.clone() : orthonormal_columns(outputs);
  const Tensor inner = product(to_directions_.slice(0, r), in_float64(w2));
  const Tensor core = product(product(basis, outputs, true, false), inner);
  LowRank parts = decompose(cast(core, DType::float32).to(w2.device()), nullptr);
  parts.outer = product(cast(basis, DType::float32).to(w2.device()), parts.outer);
  return parts;
}

Tensor LossMetric::bias_change(const Tensor& bias, std::int64_t r) const {
  const Tensor change = mean_.clone();
  const std::int64_t outputs = bias.numel(), of_each = change.numel() / outputs;
  if (of_each == 1) axpy(-1.0, in_float64(bias).view({-1, 1}), change);
  const Tensor kept = product(to_directions_.slice(0, r), change);
  axpy(-1.0, product(to_outputs_.slice(0, r), kept, true, false), change);
  const Tensor ones({of_each, 1}, DType::float64);
  fill(ones, 1);
  return cast(product(change.view({outputs, of_each}), ones), DType::float32).view({-1});
}

double positions_per_sample(const OutputMoments& moments) {
  return moments.positions().item(1) / moments.samples().item(1);
}

}  // namespace ab
