// SPDX-License-Identifier: MIT
#include "engine/backend/factorisations.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

#include "engine/backend/cpu/blas.h"
#include "engine/core/check.h"

extern "C" const char* openblas_get_corename();

namespace ab {

// In column-major order a row-major lower triangle is an upper one, U = Lᵀ, and A = UᵀU.
Cholesky cholesky(const Tensor& a) {
  AB_ASSERT(a.dtype() == DType::float64 && a.rank() == 2 && a.dim(0) == a.dim(1));
  const int n = static_cast<int>(a.dim(0));
  const Tensor lower = a.clone();
  double* l = lower.data<double>();
  for (int i = 0; i < n; ++i)
    std::fill(l + static_cast<std::int64_t>(i) * n + i + 1, l + static_cast<std::int64_t>(i + 1) * n, 0.0);
  int info = 0;
  dpotrf_("U", &n, l, &n, &info);
  AB_ASSERT(info >= 0);
  bool finite = true;  // what is not is no error to LAPACK, but reaches the diagonal
  for (int i = 0; i < n; ++i) finite = finite && std::isfinite(l[static_cast<std::int64_t>(i) * n + i]);
  AB_CHECK_KIND(numerics, info == 0 && finite, "a {} matrix is not positive definite; it may hold NaN or infinity",
                a.shape().str());
  const Tensor inverse = lower.clone();
  dtrtri_("U", "N", &n, inverse.data<double>(), &n, &info);
  AB_ASSERT(info == 0);
  return {lower, inverse};
}

namespace {

/// Eigenvalues, ascending, of a matrix that is destroyed; with `job` "V" it becomes the eigenvectors.
std::vector<double> eigenvalues_of(const Tensor& matrix, const char* job) {
  AB_ASSERT(matrix.dtype() == DType::float64 && matrix.rank() == 2 && matrix.dim(0) == matrix.dim(1));
  const int n = static_cast<int>(matrix.dim(0));
  double* a = matrix.data<double>();
  std::vector<double> values(static_cast<std::size_t>(n));
  int info = 0, work_size = -1, iwork_size = -1, iwork_query = 0;
  double work_query = 0;
  dsyevd_(job, "L", &n, a, &n, values.data(), &work_query, &work_size, &iwork_query, &iwork_size, &info);
  work_size = static_cast<int>(work_query);
  iwork_size = iwork_query;
  std::vector<double> work(static_cast<std::size_t>(work_size));
  std::vector<int> iwork(static_cast<std::size_t>(iwork_size));
  dsyevd_(job, "L", &n, a, &n, values.data(), work.data(), &work_size, iwork.data(), &iwork_size, &info);
  AB_ASSERT(info >= 0);
  AB_CHECK_KIND(numerics, info == 0, "the eigenvalues of a {} matrix did not converge; it may hold NaN or infinity",
                matrix.shape().str());
  return values;
}

}  // namespace

SymmetricEigen symmetric_eigen(const Tensor& matrix) {
  const Tensor ascending = matrix.clone();
  const std::vector<double> values = eigenvalues_of(ascending, "V");
  const std::int64_t n = matrix.dim(0);
  SymmetricEigen eigen{{values.rbegin(), values.rend()}, Tensor({n, n}, DType::float64)};
  const double* a = ascending.data<double>();
  double* descending = eigen.vectors.data<double>();
  for (std::int64_t j = 0; j < n; ++j) std::copy_n(a + (n - 1 - j) * n, n, descending + j * n);
  return eigen;
}

std::vector<double> symmetric_eigenvalues(const Tensor& matrix) {
  const std::vector<double> values = eigenvalues_of(matrix.clone(), "N");
  return {values.rbegin(), values.rend()};
}

Tensor orthonormal_columns(const Tensor& y) {
  AB_ASSERT(y.dtype() == DType::float64 && y.rank() == 2 && y.dim(0) >= y.dim(1));
  const int m = static_cast<int>(y.dim(0)), n = static_cast<int>(y.dim(1));
  std::vector<double> a(static_cast<std::size_t>(y.numel()));  // column-major
  const double* rows = y.data<double>();
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j) a[static_cast<std::size_t>(j * m + i)] = rows[i * n + j];

  std::vector<double> tau(static_cast<std::size_t>(n)), r_signs(static_cast<std::size_t>(n));
  int info = 0, work_size = -1;
  double query_qr = 0, query_q = 0;
  dgeqrf_(&m, &n, a.data(), &m, tau.data(), &query_qr, &work_size, &info);
  dorgqr_(&m, &n, &n, a.data(), &m, tau.data(), &query_q, &work_size, &info);
  work_size = static_cast<int>(std::max(query_qr, query_q));
  std::vector<double> work(static_cast<std::size_t>(work_size));
  dgeqrf_(&m, &n, a.data(), &m, tau.data(), work.data(), &work_size, &info);
  AB_ASSERT(info == 0);
  for (std::size_t j = 0; j < r_signs.size(); ++j) r_signs[j] = a[j * static_cast<std::size_t>(m) + j] < 0 ? -1 : 1;
  dorgqr_(&m, &n, &n, a.data(), &m, tau.data(), work.data(), &work_size, &info);
  AB_ASSERT(info == 0);

  const Tensor basis(y.shape(), DType::float64);
  double* q = basis.data<double>();
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j)
      q[i * n + j] = a[static_cast<std::size_t>(j * m + i)] * r_signs[static_cast<std::size_t>(j)];
  return basis;
}

namespace {

/// The newest kernels that every release of the last years has for the vectors of this processor.
std::string kernels_of_processor() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")) return "SkylakeX";
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return "Haswell";
#endif
  return "";
}

/// Kernels of processors without AVX2.
constexpr std::string_view kOld[] = {"Prescott", "Katmai",     "Coppermine",   "Northwood",  "Core2",
                                     "Penryn",   "Dunnington", "Atom",         "Nehalem",    "Sandybridge",
                                     "Athlon",   "Opteron",    "Opteron_SSE3", "Barcelona",  "Bobcat",
                                     "Nano",     "Banias",     "Bulldozer",    "Piledriver", "Steamroller"};

}  // namespace

cpu::OpenBlasKernels cpu::openblas_kernels() {
  const std::string running = openblas_get_corename();
  const bool old = std::ranges::find(kOld, running) != std::end(kOld);
  return {running, old ? kernels_of_processor() : ""};
}

}  // namespace ab
