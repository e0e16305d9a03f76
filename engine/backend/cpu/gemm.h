#pragma once
// SPDX-License-Identifier: MIT
//
// Row-major matrix products on the CPU.
//
// Threads that multiply must block every signal that has a handler. oneDNN's sgemm for AVX-512 (seen in 2.6.3, K of
// 3072) keeps its stack pointer in a buffer on the heap, and the kernel writes the handler's frame below it, over
// whatever lies there.

#include "engine/backend/backend.h"

namespace ab::cpu {

/// C[m,n] = op(A)[m,k] · op(B)[k,n] + beta · C on contiguous float32 matrices.
void sgemm(bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, float alpha,
           const float* a, const float* b, float beta, float* c);

/// The same in float64.
void dgemm(bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, double alpha,
           const double* a, const double* b, double beta, double* c);

/// Backend::gemm: dispatches on the element type.
void gemm(const GemmSpec& spec, const Tensor& a, const Tensor& b, const Tensor& c, const Epilogue& epilogue);
/// Backend::batched_gemm: the same; every thread multiplies matrices of its own.
void batched_gemm(const BatchedGemmSpec& spec, const Tensor& a, const Tensor& b, const Tensor& c);

}  // namespace ab::cpu
