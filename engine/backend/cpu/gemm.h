#pragma once
// SPDX-License-Identifier: MIT
//
// Row-major matrix products on the CPU.

#include "engine/backend/backend.h"

namespace ab::cpu {

/// C[m,n] = op(A)[m,k] · op(B)[k,n] + beta · C on contiguous float32 matrices.
void sgemm(bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, float alpha,
           const float* a, const float* b, float beta, float* c);

/// The same in float64.
void dgemm(bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, double alpha,
           const double* a, const double* b, double beta, double* c);

/// Backend::gemm: dispatches on the element type.
void gemm(const GemmSpec& spec, const Tensor& a, const Tensor& b, const Tensor& c);
/// Backend::batched_gemm: the same; every thread multiplies matrices of its own.
void batched_gemm(const BatchedGemmSpec& spec, const Tensor& a, const Tensor& b, const Tensor& c);

}  // namespace ab::cpu
