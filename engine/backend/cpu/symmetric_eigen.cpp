// SPDX-License-Identifier: MIT
#include "engine/backend/symmetric_eigen.h"

#include <algorithm>

#include "engine/backend/cpu/blas.h"
#include "engine/core/check.h"

namespace ab {
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

}  // namespace ab
