// SPDX-License-Identifier: MIT
#include "engine/backend/symmetric_eigen.h"

#include <algorithm>

#include "engine/backend/cpu/blas.h"
#include "engine/core/check.h"

namespace ab {

SymmetricEigen symmetric_eigen(const Tensor& matrix) {
  AB_ASSERT(matrix.dtype() == DType::float64 && matrix.rank() == 2 && matrix.dim(0) == matrix.dim(1));
  const int n = static_cast<int>(matrix.dim(0));
  const Tensor ascending = matrix.clone();  // becomes the eigenvectors
  double* a = ascending.data<double>();

  std::vector<double> values(static_cast<std::size_t>(n));
  int info = 0, work_size = -1, iwork_size = -1, iwork_query = 0;
  double work_query = 0;
  dsyevd_("V", "L", &n, a, &n, values.data(), &work_query, &work_size, &iwork_query, &iwork_size, &info);
  work_size = static_cast<int>(work_query);
  iwork_size = iwork_query;
  std::vector<double> work(static_cast<std::size_t>(work_size));
  std::vector<int> iwork(static_cast<std::size_t>(iwork_size));
  dsyevd_("V", "L", &n, a, &n, values.data(), work.data(), &work_size, iwork.data(), &iwork_size, &info);
  AB_ASSERT(info >= 0);
  AB_CHECK_KIND(numerics, info == 0, "the eigenvalues of a {} matrix did not converge; it may hold NaN or infinity",
                matrix.shape().str());

  SymmetricEigen eigen{{values.rbegin(), values.rend()}, Tensor({n, n}, DType::float64)};
  double* descending = eigen.vectors.data<double>();
  for (std::int64_t j = 0; j < n; ++j) std::copy_n(a + (n - 1 - j) * n, n, descending + j * n);
  return eigen;
}

}  // namespace ab
