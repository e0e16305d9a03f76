// SPDX-License-Identifier: MIT
#include "engine/backend/cpu/gemm.h"

#include <algorithm>

#include "engine/backend/cpu/blas.h"
#include "engine/device/exec.h"
#include "engine/kernels/activation.h"
#include "engine/kernels/elementwise.h"

namespace ab::cpu {
namespace {

template <class T> void multiply_all(const BatchedGemmSpec& s, const T* a, const T* b, T* c) {
  const auto begin = [](const MatrixGrid& grid, std::int64_t i, std::int64_t j) {
    return grid.offset + i * grid.outer_stride + j * grid.inner_stride;
  };
  // Inside the loop oneDNN and OpenBLAS see that threads are taken, and stay on theirs.
  for_each_row(Device{}, s.outer * s.inner, s.m * s.k + s.k * s.n + s.m * s.n, [&](auto&, std::int64_t index) {
    const std::int64_t i = index / s.inner, j = index % s.inner;
    gemm_strided(s.transpose_a, s.transpose_b, s.m, s.n, s.k, static_cast<T>(s.alpha), a + begin(s.a, i, j),
                 s.a.row_stride, b + begin(s.b, i, j), s.b.row_stride, T{0}, c + begin(s.c, i, j), s.c.row_stride);
  });
}

}  // namespace

void gemm_strided(bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, double alpha,
                  const double* a, std::int64_t a_stride, const double* b, std::int64_t b_stride, double beta,
                  double* c, std::int64_t c_stride) {
  // A row-major matrix is its transpose in column-major order: C^T = op(B)^T · op(A)^T.
  const int rows = static_cast<int>(m), columns = static_cast<int>(n), inner = static_cast<int>(k);
  const int lda = static_cast<int>(a_stride), ldb = static_cast<int>(b_stride), ldc = static_cast<int>(c_stride);
  dgemm_(transpose_b ? "T" : "N", transpose_a ? "T" : "N", &columns, &rows, &inner, &alpha, b, &ldb, a, &lda, &beta, c,
         &ldc);
}

template <class T>
void gemm_contiguous(bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, T alpha,
                     const T* a, const T* b, T beta, T* c) {
  if (k == 0) {  // oneDNN would leave C alone
    std::transform(c, c + m * n, c, [beta](T v) { return beta == 0 ? T{0} : beta * v; });
    return;
  }
  if (m == 0 || n == 0) return;
  gemm_strided(transpose_a, transpose_b, m, n, k, alpha, a, transpose_a ? m : k, b, transpose_b ? k : n, beta, c, n);
}

template void gemm_contiguous(bool, bool, std::int64_t, std::int64_t, std::int64_t, float, const float*, const float*,
                              float, float*);
template void gemm_contiguous(bool, bool, std::int64_t, std::int64_t, std::int64_t, double, const double*,
                              const double*, double, double*);

BatchedGemmSpec one_matrix(const GemmSpec& spec, std::int64_t m, std::int64_t n, std::int64_t k) {
  return {.m = m,
          .n = n,
          .k = k,
          .transpose_a = spec.transpose_a,
          .transpose_b = spec.transpose_b,
          .alpha = spec.alpha,
          .a = {.row_stride = spec.transpose_a ? m : k},
          .b = {.row_stride = spec.transpose_b ? k : n},
          .c = {.row_stride = n}};
}

namespace {

/// 16-bit matrices; `v` is of their type, or float32.
void gemm_16_bit(const GemmSpec& spec, const Tensor& a, const Tensor& b, const Tensor& v, const Tensor& bias,
                 const Tensor& addend) {
  const auto address = [](const Tensor& t) { return t.defined() ? t.raw() : nullptr; };
  const std::int64_t m = v.dim(0), n = v.dim(1), k = a.dim(spec.transpose_a ? 0 : 1);
  if (spec.beta == 0.0f && a.dtype() == DType::bfloat16 &&
      matmul_bfloat16(one_matrix(spec, m, n, k),
                      {a.raw(), b.raw(), v.raw(), v.dtype(), address(bias), address(addend)}))
    return;
  const bool is_rounded = v.dtype() != DType::float32;
  const Tensor v32 = is_rounded && spec.beta == 0.0f ? Tensor(v.shape()) : cast(v, DType::float32);
  Epilogue sums;
  sums.bias = cast(bias, DType::float32), sums.addend = cast(addend, DType::float32);
  gemm(spec, cast(a, DType::float32), cast(b, DType::float32), v32, sums);
  if (is_rounded) cast_into(v, v32);
}

}  // namespace

void gemm(const GemmSpec& spec, const Tensor& a, const Tensor& b, const Tensor& c, const Epilogue& epilogue) {
  AB_ASSERT(!epilogue.addend.defined() || spec.beta == 0.0f);
  const Tensor v = epilogue.before_activation(c);
  const std::int64_t m = c.dim(0), n = c.dim(1), k = a.dim(spec.transpose_a ? 0 : 1);
  if (size_of(a.dtype()) == 2) {
    gemm_16_bit(spec, a, b, v, epilogue.bias, epilogue.addend);
    return apply_epilogue(c, {.activation = epilogue.activation, .z = epilogue.z, .grad = epilogue.grad});
  }
  const auto multiply = [&]<class T>(T alpha, T beta) {
    gemm_contiguous(spec.transpose_a, spec.transpose_b, m, n, k, alpha, a.data<T>(), b.data<T>(), beta, v.data<T>());
  };
  if (c.dtype() == DType::float64) multiply(double{spec.alpha}, double{spec.beta});
  else multiply(spec.alpha, spec.beta);
  apply_epilogue(c, epilogue);
}

void batched_gemm(const BatchedGemmSpec& spec, const Tensor& a, const Tensor& b, const Tensor& c) {
  if (c.dtype() == DType::float64) return multiply_all(spec, a.data<double>(), b.data<double>(), c.data<double>());
  if (c.dtype() == DType::float32) return multiply_all(spec, a.data<float>(), b.data<float>(), c.data<float>());
  const auto first = [](const Tensor& t, const MatrixGrid& grid) { return t.data<bfloat16>() + grid.offset; };
  if (c.dtype() == DType::bfloat16 && matmul_bfloat16(spec, {first(a, spec.a), first(b, spec.b), first(c, spec.c)}))
    return;
  const Tensor c32 = cast(c, DType::float32);
  batched_gemm(spec, cast(a, DType::float32), cast(b, DType::float32), c32);
  cast_into(c, c32);
}

}  // namespace ab::cpu
