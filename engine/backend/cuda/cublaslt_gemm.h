#pragma once
// SPDX-License-Identifier: MIT
//
// One matrix product, or a batch of equal ones, planned by cuBLASLt. cuBLASLt thinks in columns; read that way,
// our row-major C = A·B is Cᵀ = Bᵀ·Aᵀ, so the operands trade places and nothing is moved in memory. float32 is
// multiplied as such unless TF32 is allowed; bfloat16 and float16 are accumulated in float32.

#include <cstddef>
#include <vector>

#include "engine/backend/backend.h"
#include "engine/backend/cuda/libraries.h"
#include "engine/backend/plan_choice.h"

namespace ab::cuda {

/// How far apart the rows of a matrix are (0: as close as they can be), and the matrices of a batch (0: all are one), in elements.
struct GemmStrides {
  std::int64_t row = 0, batch = 0;
  auto operator<=>(const GemmStrides&) const = default;
};

// The operands have traded places, and our columns are cuBLASLt's rows: a bias for each of them is its bias, and our op(A), whose
// row sums are a bias gradient, is its B.
inline constexpr cublasLtEpilogue_t kNoEpilogue = CUBLASLT_EPILOGUE_DEFAULT;
inline constexpr cublasLtEpilogue_t kAddBias = CUBLASLT_EPILOGUE_BIAS;         ///< adds bias[j] to column j of C
inline constexpr cublasLtEpilogue_t kBiasGradient = CUBLASLT_EPILOGUE_BGRADB;  ///< bias[i] = the sum of row i of op(A)
inline constexpr std::int64_t kBiasAlignment = 16;  ///< bytes that divide the address of a bias

/// Everything a plan depends on, besides the device. op(A): m×k, op(B): k×n, C: m×n.
struct GemmKey {
  bool transpose_a = false, transpose_b = false;
  std::int64_t m = 0, n = 0, k = 0;
  DType dtype = DType::float32;                               ///< of A, B and C
  std::uint32_t align_a = 256, align_b = 256, align_c = 256;  ///< bytes that divide the addresses
  std::int64_t batch = 1;
  GemmStrides strides_a = {}, strides_b = {}, strides_c = {};
  bool tf32 = false;  ///< float32: multiply as TF32
  cublasLtEpilogue_t epilogue = kNoEpilogue;
  PlanChoice choice = PlanChoice::heuristic;

  auto operator<=>(const GemmKey&) const = default;
};

class CublasLtGemm {
 public:
  /// The epilogue is part of the plan where cuBLASLt has it for these matrices; otherwise the product is planned alone.
  CublasLtGemm(const GemmKey& key, cublasLtHandle_t handle);

  /// Algorithms to choose from, best guess first: one, unless they are to be timed.
  std::size_t candidates() const { return candidates_.size(); }
  /// Drops the others.
  void keep(std::size_t i) { candidates_ = {candidates_[i]}; }

  /// Whether algorithm i does what the key says of an epilogue; if not, that remains to be done.
  bool is_fused(std::size_t i = 0) const { return candidates_[i].epilogue != kNoEpilogue; }
  std::size_t workspace_bytes(std::size_t i = 0) const { return candidates_[i].found.workspaceSize; }

  /// c = alpha · op(a) · op(b) + beta · addend; the addend is laid out like c, and may be c. `bias` is null when the key's
  /// epilogue needs none. `workspace` has workspace_bytes(i).
  void execute(cublasLtHandle_t handle, double alpha, const void* a, const void* b, double beta, const void* addend,
               void* c, void* bias, void* workspace, cudaStream_t stream, std::size_t i = 0);

 private:
  struct Candidate {
    cublasLtMatmulHeuristicResult_t found;
    cublasLtEpilogue_t epilogue;
  };

  /// `any`: also those that need much workspace, or add up in the type of C.
  void add_candidates(cublasLtHandle_t handle, const GemmKey& key, cublasLtEpilogue_t epilogue, bool any = false);
  void set_epilogue(cublasLtEpilogue_t epilogue, void* bias);

  DType dtype_;
  CublasLtMatmulDesc operation_;
  CublasLtMatrixLayout a_, b_, c_;
  std::vector<Candidate> candidates_;  // never empty
};

}  // namespace ab::cuda
