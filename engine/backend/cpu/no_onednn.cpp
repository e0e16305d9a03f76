// SPDX-License-Identifier: MIT
//
// Stands in for onednn*.cpp in builds without oneDNN: OpenBLAS multiplies, and convolutions become matrix products.
#include <algorithm>

#include "engine/backend/cpu/blas.h"
#include "engine/backend/cpu/conv.h"
#include "engine/backend/cpu/gemm.h"
#include "engine/core/threads.h"
#include "engine/device/exec.h"

namespace ab::cpu {
namespace {

// Up to so many multiplications OpenBLAS stays on one thread, and so do we.
constexpr std::int64_t kWorthDividing = 1 << 18;

void multiply(bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, float alpha,
              const float* a, std::int64_t a_stride, const float* b, std::int64_t b_stride, float beta, float* c,
              std::int64_t c_stride) {
  // A row-major matrix is its transpose in column-major order: C^T = op(B)^T · op(A)^T.
  const int rows = static_cast<int>(m), columns = static_cast<int>(n), inner = static_cast<int>(k);
  const int lda = static_cast<int>(a_stride), ldb = static_cast<int>(b_stride), ldc = static_cast<int>(c_stride);
  sgemm_(transpose_b ? "T" : "N", transpose_a ? "T" : "N", &columns, &rows, &inner, &alpha, b, &ldb, a, &lda, &beta, c,
         &ldc);
}

}  // namespace

// OpenBLAS lets one team of threads multiply at a time: the ranks of a process would wait for each other. So our own
// threads share the rows or columns of C, and each calls OpenBLAS for its part.
void gemm_strided(bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, float alpha,
                  const float* a, std::int64_t a_stride, const float* b, std::int64_t b_stride, float beta, float* c,
                  std::int64_t c_stride) {
  const bool one_thread = inside_parallel_loop() || m * n * k <= kWorthDividing;
  const std::int64_t parts = one_thread ? 1 : std::min<std::int64_t>(compute_threads(), std::max(m, n));
  for_each_row(Device{}, parts, m * n * k / parts, [&](auto&, std::int64_t part) {
    const bool by_rows = m >= n;
    const std::int64_t begin = std::max(m, n) * part / parts, size = std::max(m, n) * (part + 1) / parts - begin;
    const std::int64_t i = by_rows ? begin : 0, j = by_rows ? 0 : begin;
    multiply(transpose_a, transpose_b, by_rows ? size : m, by_rows ? n : size, k, alpha,
             a + i * (transpose_a ? 1 : a_stride), a_stride, b + j * (transpose_b ? b_stride : 1), b_stride, beta,
             c + i * c_stride + j, c_stride);
  });
}

const char* native_bfloat16() { return nullptr; }
bool matmul_bfloat16(const BatchedGemmSpec&, const Bfloat16Product&) { return false; }

bool conv_direct(const Conv2dSpec& spec, ConvDirection direction, const ConvTensors& t) {
  return conv_pointwise(spec, direction, t) || conv_im2col(spec, direction, t);
}

std::size_t direct_scratch_bytes(const Conv2dSpec& spec, ConvDirection, DType) {
  return spec.is_pointwise() ? 0 : im2col_scratch_bytes(spec);
}

}  // namespace ab::cpu
