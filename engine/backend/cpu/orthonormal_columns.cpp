// SPDX-License-Identifier: MIT
#include "engine/backend/orthonormal_columns.h"

#include <algorithm>
#include <vector>

#include "engine/backend/cpu/blas.h"
#include "engine/core/check.h"

namespace ab {

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

}  // namespace ab
