#pragma once
// SPDX-License-Identifier: MIT
//
// Row-major matrix products on the CPU.
//
// Threads that multiply must block every signal that has a handler. oneDNN's sgemm for AVX-512 (seen in 2.6.3, K of
// 3072) keeps its stack pointer in a buffer on the heap, and the kernel writes the handler's frame below it, over
// whatever lies there.

#include "engine/backend/backend.h"
#include "engine/core/tensor.h"

namespace ab::cpu {

/// C[m,n] = alpha · op(A)[m,k] · op(B)[k,n] + beta · C on contiguous float32 matrices.
void sgemm(bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, float alpha,
           const float* a, const float* b, float beta, float* c);

/// C = alpha · op(A) · op(B) + beta · C, k > 0, on matrices whose rows lie `*_stride` elements apart. By oneDNN
/// (onednn.cpp), or in builds without it by OpenBLAS (no_onednn.cpp).
void sgemm_strided(bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, float alpha,
                   const float* a, std::int64_t a_stride, const float* b, std::int64_t b_stride, float beta, float* c,
                   std::int64_t c_stride);

/// The unit by which this processor multiplies bfloat16, summed in float32: "AMX", "AVX512-BF16"; null: there is none, or no
/// oneDNN that uses it. ONEDNN_MAX_CPU_ISA=AVX512_CORE hides it.
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

/// sgemm in float64.
void dgemm(bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, double alpha,
           const double* a, const double* b, double beta, double* c);

/// Backend::gemm: dispatches on the element type.
void gemm(const GemmSpec& spec, const Tensor& a, const Tensor& b, const Tensor& c, const Epilogue& epilogue);
/// Backend::batched_gemm: the same; every thread multiplies matrices of its own.
void batched_gemm(const BatchedGemmSpec& spec, const Tensor& a, const Tensor& b, const Tensor& c);

// Where 16-bit types are not multiplied, operations convert to float32, compute, and round back.

/// A float32 copy of a tensor of 16-bit floats; float32 and undefined stay as they are.
Tensor to_float32(const Tensor& x);
/// Rounds float32 `from` to nearest even into `to`, of 16-bit floats and the same size.
void round_from_float32(const Tensor& from, const Tensor& to);

}  // namespace ab::cpu
