#pragma once
// SPDX-License-Identifier: MIT
//
// One matrix product, or a batch of equal ones, planned by cuBLASLt. cuBLASLt thinks in columns; read that way,
// our row-major C = A·B is Cᵀ = Bᵀ·Aᵀ, so the operands trade places and nothing is moved in memory. float32 is
// multiplied as such unless TF32 is allowed; bfloat16 and float16 are accumulated in float32.

#include <cstddef>

#include "engine/backend/backend.h"
#include "engine/backend/cuda/handles.h"

namespace ab::cuda {

/// How far apart the rows of a matrix are, and the matrices of a batch, in elements. 0: as close as they can be.
struct GemmStrides {
  std::int64_t row = 0, batch = 0;
  bool operator==(const GemmStrides&) const = default;
};

/// Everything a plan depends on, besides the device. op(A): m×k, op(B): k×n, C: m×n.
struct GemmKey {
  bool transpose_a = false, transpose_b = false;
  std::int64_t m = 0, n = 0, k = 0;
  DType dtype = DType::float32;                               ///< of A, B and C
  std::uint32_t align_a = 256, align_b = 256, align_c = 256;  ///< bytes that divide the addresses
  std::int64_t batch = 1;
  GemmStrides strides_a = {}, strides_b = {}, strides_c = {};
  bool tf32 = false;  ///< float32: multiply as TF32

  bool operator==(const GemmKey&) const = default;
};

struct GemmKeyHash {
  std::size_t operator()(const GemmKey& key) const;
};

class CublasLtGemm {
 public:
  CublasLtGemm(cublasLtHandle_t handle, const GemmKey& key);

  std::size_t workspace_bytes() const { return algorithm_.workspaceSize; }

  void execute(cublasLtHandle_t handle, double alpha, const void* a, const void* b, double beta, void* c,
               void* workspace, cudaStream_t stream) const;

 private:
  DType dtype_;
  CublasLtMatmulDesc operation_;
  CublasLtMatrixLayout a_, b_, c_;
  cublasLtMatmulHeuristicResult_t algorithm_{};
};

}  // namespace ab::cuda
