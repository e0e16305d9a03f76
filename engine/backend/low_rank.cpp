// SPDX-License-Identifier: MIT
#include "engine/backend/low_rank.h"

#include <cstring>

#include "engine/backend/backend.h"
#include "engine/core/precision.h"
#include "engine/device/exec.h"
#include "engine/kernels/finite_check.h"
#include "engine/kernels/low_rank.h"

namespace ab {
namespace {

/// From here on a pass is a library's: there is more arithmetic than memory. On a CPU the first always is.
constexpr std::int64_t kManyFactors = 8;

// The second pass as loops of a CPU: four rows of M at a time, so that what has been read of a factor serves them all, with sums in
// vector registers.

#if defined(__AVX512F__)
constexpr std::int64_t kWidth = 16;
#elif defined(__AVX2__)
constexpr std::int64_t kWidth = 8;
#else
constexpr std::int64_t kWidth = 4;
#endif
constexpr int kRows = 4;

using Vector [[gnu::vector_size(kWidth * sizeof(float))]] = float;

Vector load(const float* from) {
  Vector v;
  std::memcpy(&v, from, sizeof v);
  return v;
}
/// The first `count`, then zeros.
Vector load(const float* from, std::int64_t count) {
  Vector v{};
  std::memcpy(&v, from, static_cast<std::size_t>(count) * sizeof(float));
  return v;
}
void store(float* to, const Vector& v) { std::memcpy(to, &v, sizeof v); }
void store(float* to, const Vector& v, std::int64_t count) {
  std::memcpy(to, &v, static_cast<std::size_t>(count) * sizeof(float));
}

template <int N> using Constant = std::integral_constant<int, N>;

/// body(first row, how many as a constant) for groups of rows; what is left comes row by row.
template <class Body>
void for_each_row_group(Device device, std::int64_t rows, std::int64_t row_cost, const Body& body) {
  for_each_row(device, (rows + kRows - 1) / kRows, kRows * row_cost, [=](const auto&, std::int64_t group) {
    const std::int64_t first = group * kRows;
    if (rows - first >= kRows) return body(first, Constant<kRows>{});
    for (std::int64_t i = first; i < rows; ++i) body(i, Constant<1>{});
  });
}

/// Pᵀ·Q with P [r, n] and Q [r, columns].
struct Product {
  const float *p, *q;
};

/// kernels::SplitOffProjection for a group of rows.
struct Split {
  Product own, mean;
  const double* failed;
  float *m, *residual;
  std::int64_t n, columns, r;

  template <int kCount> void operator()(std::int64_t i, Constant<kCount> count) const {
    std::int64_t j = 0;
    for (; columns - j >= 2 * kWidth; j += 2 * kWidth) block(i, count, j, Constant<2>{});
    for (; columns - j >= kWidth; j += kWidth) block(i, count, j, Constant<1>{});
    if (j < columns) block(i, count, j, Constant<1>{}, columns - j);
  }

 private:
  /// Columns j … of rows i …; `left`: how many, if they do not fill a vector.
  template <int kCount, int kVectors, class... Left>
  void block(std::int64_t i, Constant<kCount>, std::int64_t j, Constant<kVectors>, Left... left) const {
    Vector of_own[kCount][kVectors] = {}, of_mean[kCount][kVectors] = {};
    for (std::int64_t k = 0; k < r; ++k)
      for (int v = 0; v < kVectors; ++v) {
        const Vector x = load(own.q + k * columns + j + v * kWidth, left...);
        const Vector y = load(mean.q + k * columns + j + v * kWidth, left...);
        for (int a = 0; a < kCount; ++a)
          of_own[a][v] += own.p[k * n + i + a] * x, of_mean[a][v] += mean.p[k * n + i + a] * y;
      }
    const bool keep = *failed != 0;
    for (int a = 0; a < kCount; ++a)
      for (int v = 0; v < kVectors; ++v) {
        const std::int64_t at = (i + a) * columns + j + v * kWidth;
        if (!keep) store(residual + at, load(m + at, left...) - of_own[a][v], left...);
        store(m + at, of_mean[a][v], left...);
      }
  }
};

}  // namespace

void add_and_project(const Tensor& gradient, const Tensor& residual, const Tensor& q, const Tensor& m,
                     const Tensor& p) {
  const std::int64_t rows = m.dim(0), columns = m.dim(1), r = q.dim(0);
  AB_ASSERT(residual.numel() == m.numel() && q.dim(1) == columns && p.numel() == r * rows);
  AB_ASSERT(!gradient.defined() || gradient.numel() == m.numel());
  if (r >= kManyFactors || m.device().is_like_cpu()) {
    const Tf32Scope exact(Precision::fp32);
    add_residual(gradient, residual, m);
    return backend(m.device()).gemm({.transpose_b = true}, q, m, p);
  }
  if (m.device().kind == DeviceKind::shapes) return;
  run_pass(m.device(),
           kernels::AddAndProject{gradient.defined() ? gradient.data<float>() : nullptr, residual.data<float>(),
                                  q.data<float>(), m.data<float>(), p.data<float>(), rows, columns, r});
}

void split_off_projection(const RowFactors& own, const RowFactors& mean, const Tensor& failed, const Tensor& m,
                          const Tensor& residual) {
  const std::int64_t rows = m.dim(0), columns = m.dim(1), r = own.q.dim(0);
  AB_ASSERT(residual.numel() == m.numel() && failed.numel() == 1);
  if (r >= kManyFactors) {
    const Tf32Scope exact(Precision::fp32);
    backend(m.device()).gemm({.transpose_a = true, .alpha = -1, .beta = 1}, own.p, own.q, m);
    FiniteCheck(failed).choose(residual, m, residual);
    return backend(m.device()).gemm({.transpose_a = true}, mean.p, mean.q, m);
  }
  if (m.device().kind == DeviceKind::shapes) return;
  const float *const own_p = own.p.data<float>(), *const own_q = own.q.data<float>();
  const float *const mean_p = mean.p.data<float>(), *const mean_q = mean.q.data<float>();
  const double* const fails = failed.data<double>();
  if (m.device().kind == DeviceKind::cuda)
    return run_pass(m.device(), kernels::SplitOffProjection{own_p, own_q, mean_p, mean_q, fails, m.data<float>(),
                                                            residual.data<float>(), rows, columns, r});
  for_each_row_group(
      m.device(), rows, columns * (2 * r + 3),
      Split{{own_p, own_q}, {mean_p, mean_q}, fails, m.data<float>(), residual.data<float>(), rows, columns, r});
}

}  // namespace ab
