// SPDX-License-Identifier: MIT
#include <cmath>

#include "engine/backend/cpu/blas.h"
#include "engine/backend/cpu/gemm.h"
#include "engine/backend/factorisations.h"
#include "engine/device/exec.h"
#include "engine/kernels/reduce.h"

namespace ab::cpu {
namespace {

// The eigenvectors of WᵀW are orthogonal to about eps · n, so the columns of W V / s are orthogonal to
// eps · n · (s₁ / s)²: beyond this ratio float32 accuracy is lost, and U is orthonormalised instead.
constexpr double kSafeRatio = 1e-4;

/// Turns pairs of singular vectors around so that the entry of largest magnitude in each row of Vᵀ is
/// positive.
void fix_signs(const Svd& svd) {
  const std::int64_t m = svd.u.dim(0), n = svd.u.dim(1);
  float *u = svd.u.data<float>(), *vt = svd.vt.data<float>();
  std::vector<float> signs(static_cast<std::size_t>(n), 1.0f);
  for (std::int64_t j = 0; j < n; ++j) {
    float* row = vt + j * n;
    const float peak = *std::max_element(row, row + n, [](float a, float b) { return std::abs(a) < std::abs(b); });
    if (peak >= 0) continue;
    signs[static_cast<std::size_t>(j)] = -1.0f;
    std::transform(row, row + n, row, std::negate{});
  }
  for (std::int64_t i = 0; i < m * n; ++i) u[i] *= signs[static_cast<std::size_t>(i % n)];
}

/// The eigenvalues and eigenvectors of WᵀW.   w64: [m, n]
SymmetricEigen gram_eigen(const Tensor& w64) {
  const int m = static_cast<int>(w64.dim(0)), n = static_cast<int>(w64.dim(1));
  const double one = 1.0, zero = 0.0;
  const Tensor gram({n, n}, DType::float64);
  dsyrk_("L", "N", &n, &m, &one, w64.data<double>(), &n, &zero, gram.data<double>(), &n);
  return symmetric_eigen(gram);
}

Svd svd_gram(const Tensor& w) {
  const std::int64_t m = w.dim(0), n = w.dim(1);
  const Tensor w64({m, n}, DType::float64);
  Tensor y({m, n}, DType::float64);
  for_each_index(Device{}, m * n, [in = w.data<float>(), out = w64.data<double>()](std::int64_t i) { out[i] = in[i]; });
  const SymmetricEigen eigen = gram_eigen(w64);

  std::vector<double> sigma(static_cast<std::size_t>(n));
  std::transform(eigen.values.begin(), eigen.values.end(), sigma.begin(),
                 [](double value) { return std::sqrt(std::max(value, 0.0)); });
  gemm_contiguous(false, true, m, n, n, 1.0, w64.data<double>(), eigen.vectors.data<double>(), 0.0, y.data<double>());
  std::vector<double> scale(sigma.size(), 1.0);
  if (sigma.back() > kSafeRatio * sigma.front())
    std::transform(sigma.begin(), sigma.end(), scale.begin(), [](double s) { return 1.0 / s; });
  else y = orthonormal_columns(y);

  Svd result{Tensor({m, n}), Tensor({n}), Tensor({n, n})};
  for_each_row(Device{}, m, n, [&](auto&, std::int64_t i) {
    for (std::int64_t j = 0; j < n; ++j)
      result.u.data<float>()[i * n + j] =
          static_cast<float>(y.data<double>()[i * n + j] * scale[static_cast<std::size_t>(j)]);
  });
  std::transform(sigma.begin(), sigma.end(), result.s.data<float>(), [](double s) { return static_cast<float>(s); });
  std::transform(eigen.vectors.data<double>(), eigen.vectors.data<double>() + n * n, result.vt.data<float>(),
                 [](double v) { return static_cast<float>(v); });
  return result;
}

}  // namespace

Svd svd(const Tensor& w) {
  AB_CHECK_KIND(numerics, all_finite(w),
                "svd: the {} matrix holds NaN or infinity; lower the learning rate or look for the first bad step",
                w.shape().str());
  const Svd result = svd_gram(w);
  fix_signs(result);
  return result;
}

}  // namespace ab::cpu
