#pragma once
// SPDX-License-Identifier: MIT
//
// Row-major matrix products on the CPU. 16-bit types that the processor does not multiply are converted to float32, and results
// rounded back.
//
// Threads that multiply must block every signal that has a handler. oneDNN's sgemm for AVX-512 (seen in 2.6.3, K of
// 3072) keeps its stack pointer in a buffer on the heap, and the kernel writes the handler's frame below it, over
// whatever lies there.

#include "engine/backend/backend.h"
#include "engine/core/tensor.h"

namespace ab::cpu {

/// C[m,n] = alpha · op(A)[m,k] · op(B)[k,n] + beta · C, k > 0, on matrices whose rows lie `*_stride` elements apart. By oneDNN
/// (onednn.cpp), or in builds without it by OpenBLAS (no_onednn.cpp); in float64 by OpenBLAS.
void gemm_strided(bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, float alpha,
                  const float* a, std::int64_t a_stride, const float* b, std::int64_t b_stride, float beta, float* c,
                  std::int64_t c_stride);
void gemm_strided(bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, double alpha,
                  const double* a, std::int64_t a_stride, const double* b, std::int64_t b_stride, double beta,
                  double* c, std::int64_t c_stride);
/// The same on contiguous matrices, with any k. T is float or double.
template <class T>
void gemm_contiguous(bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, T alpha,
                     const T* a, const T* b, T beta, T* c);

/// The unit by which this processor multiplies bfloat16, summed in float32: "AMX", "AVX512-BF16"; null: there is none that is faster
/// than float32, or no oneDNN that uses it. ONEDNN_MAX_CPU_ISA=AVX512_CORE hides it, AVX512_CORE_BF16 takes a slow one.
const char* native_bfloat16();

/// Where the matrices of a product of bfloat16 begin.
struct Bfloat16Product {
  const void *a, *b;
  void* c;
  DType type_of_c = DType::bfloat16;  ///< or float32
  const void* bias = nullptr;         ///< n values
  const void* addend = nullptr;       ///< as C lies, of bfloat16
};
/// C_ij = alpha · op(A_ij) · op(B_ij) + bias + addend, rounded once. False, with nothing written, where there is no fast way.
bool matmul_bfloat16(const BatchedGemmSpec& spec, const Bfloat16Product& of);
/// One product of contiguous matrices.
BatchedGemmSpec one_matrix(const GemmSpec& spec, std::int64_t m, std::int64_t n, std::int64_t k);

/// Backend::weight_gradient_type.
constexpr DType weight_gradient_type(DType dtype) { return dtype == DType::bfloat16 ? DType::float32 : dtype; }

/// Backend::gemm: dispatches on the element type.
void gemm(const GemmSpec& spec, const Tensor& a, const Tensor& b, const Tensor& c, const Epilogue& epilogue);
/// Backend::batched_gemm: the same; every thread multiplies matrices of its own.
void batched_gemm(const BatchedGemmSpec& spec, const Tensor& a, const Tensor& b, const Tensor& c);

/// Backend::svd.
Svd svd(const Tensor& w);

}  // namespace ab::cpu
