#pragma once
// SPDX-License-Identifier: MIT
//
// A matrix product with an activation in its epilogue, which cuBLASLt cannot give us: its GELU is an approximation and
// its ReLU does not promise to keep a NaN. cuDNN compiles such a product at run time.
//   forward  c = act(z), z = op(A) op(B) + bias      backward  c = op(A) op(B) · act'(z)
// Whether that beats cuBLASLt's product and a pass of our own depends on the shape, so there is always that choice too.

#include <cstddef>
#include <optional>

#include "engine/backend/backend.h"
#include "engine/backend/cuda/cudnn_graph.h"

namespace ab::cuda {

/// Everything a plan depends on, besides the device. Row-major; op(A): m×k, op(B): k×n, c: m×n.
struct CudnnMatmulKey {
  bool transpose_a = false, transpose_b = false;
  std::int64_t m = 0, n = 0, k = 0;
  DType dtype = DType::float32;
  std::int64_t alignment = 16;  ///< bytes that divide the address of every matrix
  bool tf32 = false;            ///< float32: products may be those of TF32
  bool has_bias = false;
  bool stores_z = false;
  Activation activation = Activation::none;  ///< forward
  Activation grad = Activation::none;        ///< backward; without any of the others

  auto operator<=>(const CudnnMatmulKey&) const = default;
};

/// The matrices of one call, on the device; null what the key does not have.
struct CudnnMatmulData {
  void* a = nullptr;
  void* b = nullptr;
  void* c = nullptr;
  void* bias = nullptr;
  void* z = nullptr;
  void* saved = nullptr;
};

class CudnnMatmul {
 public:
  CudnnMatmul(const CudnnMatmulKey& key, const CudnnTarget& target);

  /// The ways to choose from: the first is not to use cuDNN, the other, if cuDNN has a plan that repeats bit for bit,
  /// to run that. One plan: each takes seconds to compile.
  std::size_t candidates() const { return std::size_t{has_separate_} + std::size_t{plan_.has_value()}; }
  /// Drops the others.
  void keep(std::size_t i);

  /// Whether way i is a plan; if not, everything is left to do.
  bool is_fused(std::size_t i = 0) const { return i >= std::size_t{has_separate_}; }
  std::size_t workspace_bytes() const { return plan_.value().workspace_bytes; }

  /// `workspace` has workspace_bytes(). Runs on the stream of `handle`.
  void execute(cudnnHandle_t handle, const CudnnMatmulData& data, void* workspace) const;

 private:
  bool has_separate_ = true;
  std::optional<CudnnDescriptor> graph_;
  std::optional<CudnnPlan> plan_;
};

}  // namespace ab::cuda
