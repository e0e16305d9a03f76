// SPDX-License-Identifier: MIT
#include "engine/backend/cpu/gemm.h"

#include <oneapi/dnnl/dnnl.h>

#include <algorithm>

#include "engine/backend/cpu/blas.h"
#include "engine/backend/cpu/convert.h"

namespace ab::cpu {

void sgemm(bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, float alpha,
           const float* a, const float* b, float beta, float* c) {
  if (k == 0) {  // oneDNN would leave C alone
    std::transform(c, c + m * n, c, [beta](float v) { return beta == 0.0f ? 0.0f : beta * v; });
    return;
  }
  if (m == 0 || n == 0) return;
  const dnnl_status_t status = dnnl_sgemm(transpose_a ? 'T' : 'N', transpose_b ? 'T' : 'N', m, n, k, alpha, a,
                                          transpose_a ? m : k, b, transpose_b ? k : n, beta, c, n);
  AB_ASSERT(status == dnnl_success);
}

void dgemm(bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, double alpha,
           const double* a, const double* b, double beta, double* c) {
  // A row-major matrix is its transpose in column-major order: C^T = op(B)^T · op(A)^T.
  const int rows = static_cast<int>(m), columns = static_cast<int>(n), inner = static_cast<int>(k);
  const int lda = std::max(1, transpose_a ? rows : inner), ldb = std::max(1, transpose_b ? inner : columns);
  const int ldc = std::max(1, columns);
  dgemm_(transpose_b ? "T" : "N", transpose_a ? "T" : "N", &columns, &rows, &inner, &alpha, b, &ldb, a, &lda,
         &beta, c, &ldc);
}

void gemm(const GemmSpec& spec, const Tensor& a, const Tensor& b, const Tensor& c) {
  const std::int64_t m = c.dim(0), n = c.dim(1), k = a.dim(spec.transpose_a ? 0 : 1);
  switch (c.dtype()) {
    case DType::float64:
      return dgemm(spec.transpose_a, spec.transpose_b, m, n, k, spec.alpha, a.data<double>(),
                   b.data<double>(), spec.beta, c.data<double>());
    case DType::bfloat16: {
      const Tensor c32 = spec.beta == 0.0f ? Tensor(c.shape()) : to_float32(c);
      gemm(spec, to_float32(a), to_float32(b), c32);
      return round_to_bfloat16(c32, c);
    }
    default:
      return sgemm(spec.transpose_a, spec.transpose_b, m, n, k, spec.alpha, a.data<float>(), b.data<float>(),
                   spec.beta, c.data<float>());
  }
}

}  // namespace ab::cpu
