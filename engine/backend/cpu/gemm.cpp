// SPDX-License-Identifier: MIT
#include "engine/backend/cpu/gemm.h"

#include <algorithm>

#include "engine/backend/cpu/blas.h"
#include "engine/device/exec.h"
#include "engine/kernels/activation.h"

namespace ab::cpu {
namespace {

// One matrix of a batch, whose rows may be part of longer rows.
void multiply(const BatchedGemmSpec& s, const float* a, const float* b, float* c) {
  sgemm_strided(s.transpose_a, s.transpose_b, s.m, s.n, s.k, static_cast<float>(s.alpha), a, s.a.row_stride, b,
                s.b.row_stride, 0.0f, c, s.c.row_stride);
}

void multiply(const BatchedGemmSpec& s, const double* a, const double* b, double* c) {
  const int rows = static_cast<int>(s.m), columns = static_cast<int>(s.n), inner = static_cast<int>(s.k);
  const int lda = static_cast<int>(s.a.row_stride), ldb = static_cast<int>(s.b.row_stride);
  const int ldc = static_cast<int>(s.c.row_stride);
  const double beta = 0.0;
  dgemm_(s.transpose_b ? "T" : "N", s.transpose_a ? "T" : "N", &columns, &rows, &inner, &s.alpha, b, &ldb, a, &lda,
         &beta, c, &ldc);
}

template <class T> void multiply_all(const BatchedGemmSpec& s, const T* a, const T* b, T* c) {
  const auto begin = [](const MatrixGrid& grid, std::int64_t i, std::int64_t j) {
    return grid.offset + i * grid.outer_stride + j * grid.inner_stride;
  };
  // Inside the loop oneDNN and OpenBLAS see that threads are taken, and stay on theirs.
  for_each_row(Device{}, s.outer * s.inner, s.m * s.k + s.k * s.n + s.m * s.n, [&](auto&, std::int64_t index) {
    const std::int64_t i = index / s.inner, j = index % s.inner;
    multiply(s, a + begin(s.a, i, j), b + begin(s.b, i, j), c + begin(s.c, i, j));
  });
}

}  // namespace

void sgemm(bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, float alpha,
           const float* a, const float* b, float beta, float* c) {
  if (k == 0) {  // oneDNN would leave C alone
    std::transform(c, c + m * n, c, [beta](float v) { return beta == 0.0f ? 0.0f : beta * v; });
    return;
  }
  if (m == 0 || n == 0) return;
  sgemm_strided(transpose_a, transpose_b, m, n, k, alpha, a, transpose_a ? m : k, b, transpose_b ? k : n, beta, c, n);
}

void dgemm(bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, double alpha,
           const double* a, const double* b, double beta, double* c) {
  // A row-major matrix is its transpose in column-major order: C^T = op(B)^T · op(A)^T.
  const int rows = static_cast<int>(m), columns = static_cast<int>(n), inner = static_cast<int>(k);
  const int lda = std::max(1, transpose_a ? rows : inner), ldb = std::max(1, transpose_b ? inner : columns);
  const int ldc = std::max(1, columns);
  dgemm_(transpose_b ? "T" : "N", transpose_a ? "T" : "N", &columns, &rows, &inner, &alpha, b, &ldb, a, &lda, &beta, c,
         &ldc);
}

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
  const Tensor v32 = is_rounded && spec.beta == 0.0f ? Tensor(v.shape()) : to_float32(v);
  Epilogue sums;
  sums.bias = to_float32(bias), sums.addend = to_float32(addend);
  gemm(spec, to_float32(a), to_float32(b), v32, sums);
  if (is_rounded) round_from_float32(v32, v);
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
  if (c.dtype() == DType::float64)
    dgemm(spec.transpose_a, spec.transpose_b, m, n, k, spec.alpha, a.data<double>(), b.data<double>(), spec.beta,
          v.data<double>());
  else
    sgemm(spec.transpose_a, spec.transpose_b, m, n, k, spec.alpha, a.data<float>(), b.data<float>(), spec.beta,
          v.data<float>());
  apply_epilogue(c, epilogue);
}

void batched_gemm(const BatchedGemmSpec& spec, const Tensor& a, const Tensor& b, const Tensor& c) {
  if (c.dtype() == DType::float64) return multiply_all(spec, a.data<double>(), b.data<double>(), c.data<double>());
  if (c.dtype() == DType::float32) return multiply_all(spec, a.data<float>(), b.data<float>(), c.data<float>());
  const auto first = [](const Tensor& t, const MatrixGrid& grid) { return t.data<bfloat16>() + grid.offset; };
  if (c.dtype() == DType::bfloat16 && matmul_bfloat16(spec, {first(a, spec.a), first(b, spec.b), first(c, spec.c)}))
    return;
  const Tensor c32 = to_float32(c);
  batched_gemm(spec, to_float32(a), to_float32(b), c32);
  round_from_float32(c32, c);
}

namespace {

template <class F> void dispatch_half(DType dtype, const F& f) {
  if (dtype == DType::bfloat16) return f.template operator()<bfloat16>();
  AB_ASSERT(dtype == DType::float16);
  f.template operator()<float16>();
}

}  // namespace

Tensor to_float32(const Tensor& x) {
  if (!x.defined() || x.dtype() == DType::float32) return x;
  const Tensor y(x.shape());
  dispatch_half(x.dtype(), [&]<class T>() {
    for_each_index(x.device(), x.numel(),
                   [in = x.data<T>(), out = y.data<float>()](std::int64_t i) { out[i] = in[i]; });
  });
  return y;
}

void round_from_float32(const Tensor& from, const Tensor& to) {
  dispatch_half(to.dtype(), [&]<class T>() {
    for_each_index(to.device(), to.numel(),
                   [in = from.data<float>(), out = to.data<T>()](std::int64_t i) { out[i] = in[i]; });
  });
}

}  // namespace ab::cpu
