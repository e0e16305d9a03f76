// SPDX-License-Identifier: MIT
#include "engine/backend/cuda/cuda_backend.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/backend/cuda/cusolver.h"
#include "engine/kernels/elementwise.h"
#include "engine/kernels/reduce.h"

namespace ab::cuda {
namespace {

// Singular values below this part of the largest carry too little of the eigenvectors' accuracy into U: it is
// orthonormalised then instead of scaled (see cpu/svd.cpp).
constexpr double kSafeRatio = 1e-4;

/// -1 where the entry of largest magnitude of a row is negative, else 1.   rows: [n, length], in host memory
template <class T> std::vector<T> row_signs(const Tensor& rows) {
  const std::int64_t n = rows.dim(0), length = rows.dim(1);
  std::vector<T> signs(static_cast<std::size_t>(n), T(1));
  for (std::int64_t j = 0; j < n; ++j) {
    const T* row = rows.data<T>() + j * length;
    const T* peak = std::max_element(row, row + length, [](T a, T b) { return std::abs(a) < std::abs(b); });
    if (*peak < 0) signs[static_cast<std::size_t>(j)] = T(-1);
  }
  return signs;
}

/// Singular values, descending, and right vectors, as rows with fixed signs. Both are float64 in host memory:
/// the iteration has to be waited for anyway, and ordering n² numbers is nothing beside it.
struct GramEigen {
  std::vector<double> sigma;
  Tensor vt;  ///< [n, n]
};

GramEigen gram_eigen(ThreadLibraries& libraries, const Tensor& w64) {
  const std::int64_t n = w64.dim(1);
  const Tensor gram({n, n}, DType::float64, w64.device());
  gemm(libraries, {.transpose_a = true}, w64, w64, gram);
  const std::vector<double> values = eigen_in_place(libraries, gram).to_doubles();
  const Tensor ascending = gram.to(Device{});

  GramEigen eigen{std::vector<double>(static_cast<std::size_t>(n)), Tensor({n, n}, DType::float64)};
  std::transform(values.rbegin(), values.rend(), eigen.sigma.begin(),
                 [](double value) { return std::sqrt(std::max(value, 0.0)); });
  const std::vector<double> signs = row_signs<double>(ascending);
  for (std::int64_t j = 0; j < n; ++j) {
    const double* from = ascending.data<double>() + (n - 1 - j) * n;
    const double sign = signs[static_cast<std::size_t>(n - 1 - j)];
    std::transform(from, from + n, eigen.vt.data<double>() + j * n, [sign](double v) { return sign * v; });
  }
  return eigen;
}

Svd svd_gram(ThreadLibraries& libraries, const Tensor& w) {
  const std::int64_t m = w.dim(0), n = w.dim(1);
  const Device device = w.device();
  const Tensor w64 = cast(w, DType::float64), y({m, n}, DType::float64, device);
  const GramEigen eigen = gram_eigen(libraries, w64);
  const std::vector<float> sigma(eigen.sigma.begin(), eigen.sigma.end());
  Svd result{{}, Tensor::from(sigma, {n}, device), cast(eigen.vt.to(device), DType::float32)};

  if (eigen.sigma.back() > kSafeRatio * eigen.sigma.front()) {
    // Dividing the rows of Vᵀ by s first makes the product U itself.
    const Tensor scaled = eigen.vt.clone();
    for (std::int64_t i = 0; i < n * n; ++i) scaled.data<double>()[i] /= eigen.sigma[static_cast<std::size_t>(i / n)];
    gemm(libraries, {.transpose_b = true}, w64, scaled.to(device), y);
    result.u = cast(y, DType::float32);
  } else {
    gemm(libraries, {.transpose_b = true}, w64, eigen.vt.to(device), y);
    const Tensor vectors = transpose(y);
    const Tensor signs = orthonormalise_rows(libraries, vectors);
    result.u = cast(transpose(vectors), DType::float32);
    scale_columns(result.u, signs);
  }
  return result;
}

Svd svd_direct(ThreadLibraries& libraries, const Tensor& w) {
  const ColumnSvd by_columns = svd_of_columns(libraries, transpose(w));
  const Svd result{transpose(by_columns.u_columns), by_columns.s, transpose(by_columns.v)};
  const Tensor signs = Tensor::from(row_signs<float>(result.vt.to(Device{})), {w.dim(1)}, w.device());
  scale_rows(result.vt, signs);
  scale_columns(result.u, signs);
  return result;
}

}  // namespace

Svd svd(ThreadLibraries& libraries, const Tensor& w, SvdMethod method) {
  AB_CHECK(w.rank() == 2 && w.dim(0) >= w.dim(1) && w.dim(1) > 0,
           "svd: needs a tall matrix [m, n] with m >= n > 0, got {}; transpose it first", w.shape().str());
  AB_CHECK_KIND(numerics, all_finite(w),
                "svd: the {} matrix holds NaN or infinity; lower the learning rate or look for the first bad step",
                w.shape().str());
  return method == SvdMethod::gram ? svd_gram(libraries, w) : svd_direct(libraries, w);
}

}  // namespace ab::cuda
