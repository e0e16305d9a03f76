// SPDX-License-Identifier: MIT
//
// Stands in for onednn*.cpp in builds without oneDNN: OpenBLAS multiplies, and convolutions become matrix products.
#include "engine/backend/cpu/blas.h"
#include "engine/backend/cpu/conv_direct.h"
#include "engine/backend/cpu/conv_gemm.h"
#include "engine/backend/cpu/conv_loops.h"
#include "engine/backend/cpu/gemm.h"

namespace ab::cpu {

void sgemm_strided(bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, float alpha,
                   const float* a, std::int64_t a_stride, const float* b, std::int64_t b_stride, float beta, float* c,
                   std::int64_t c_stride) {
  // A row-major matrix is its transpose in column-major order: C^T = op(B)^T · op(A)^T.
  const int rows = static_cast<int>(m), columns = static_cast<int>(n), inner = static_cast<int>(k);
  const int lda = static_cast<int>(a_stride), ldb = static_cast<int>(b_stride), ldc = static_cast<int>(c_stride);
  sgemm_(transpose_b ? "T" : "N", transpose_a ? "T" : "N", &columns, &rows, &inner, &alpha, b, &ldb, a, &lda, &beta, c,
         &ldc);
}

void conv_direct(const Conv2dSpec& spec, ConvDirection direction, const ConvTensors& t) {
  if (conv_pointwise(spec, direction, t) || conv_im2col(spec, direction, t)) return;
  switch (direction) {
    case ConvDirection::forward: return conv2d_forward_loops(spec, t.x, t.w, t.bias, t.y);
    case ConvDirection::backward_data: return conv2d_backward_data_loops(spec, t.y, t.w, t.x);
    case ConvDirection::backward_weight: return conv2d_backward_weight_loops(spec, t.y, t.x, t.w);
  }
}

}  // namespace ab::cpu
