// SPDX-License-Identifier: MIT
#include "engine/backend/cholesky.h"

#include <algorithm>
#include <cmath>

#include "engine/backend/cpu/blas.h"
#include "engine/core/check.h"

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

}  // namespace ab
