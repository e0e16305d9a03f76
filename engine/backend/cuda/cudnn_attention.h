#pragma once
// SPDX-License-Identifier: MIT
//
// Fused attention as graphs of small operations: the forms that cuDNN (9.11 to 9.19, sm_90) recognises and runs as one
// kernel each, in which scores and probabilities never reach memory (Dao et al. 2022, arXiv 2205.14135). With Z = Q Kᵀ / √d and
// P = softmax(Z), for each head:
//   forward     y = P V,  L = ln Σ exp Z by rows
//   backward    P = exp(Z − L),  dV = Pᵀ dy,  dS = P ∘ (dy Vᵀ − rowsum(dy ∘ y)) / √d,  dQ = dS K,  dK = dSᵀ Q

#include <cstddef>
#include <map>
#include <vector>

#include "engine/backend/cuda/cudnn_graph.h"

namespace ab::cuda {

/// The tensors of a graph that have an address. K and V are seen transposed where a product reads them so.
enum class AttentionTensor : std::int64_t {
  q = 1,
  k = 2,  ///< as Kᵀ
  v = 3,  ///< backward: as Vᵀ
  y = 4,
  log_sums = 5,  ///< L, float32
  scale = 6,     ///< 1 / √d, a number
  dy = 8,
  dq = 9,
  dk = 10,
  dv = 11,
  row_sums = 12,  ///< rowsum(dy ∘ y), float32; scratch
  dq_sums = 13,   ///< dQ before it is rounded, float32; scratch, not in a deterministic graph
  one = 15,       ///< a number
};

/// Where Q, K and V of a packed qkv begin, in elements.
inline std::int64_t offset_of_part(const AttentionSpec& spec, int part) { return part * spec.heads * spec.width; }

/// Whether `cudnn_version` (as cudnnGetVersion() gives it) computes these graphs rightly: 16 bits, widths of multiples of 8 up
/// to 128, at least two tokens. Left out are versions and numbers of tokens with known faults: T = 64 modulo 128, whose last
/// tile the backward kernel does not mask (cudnn-frontend issues 628 and 1072), and, before 9.15.1, every T that does not fill
/// its tiles.
bool can_fuse_attention(const AttentionSpec& spec, std::size_t cudnn_version);

/// Everything plans depend on, besides the device.
struct CudnnAttentionKey {
  AttentionSpec spec;
  bool deterministic =
      false;  ///< backward adds up dQ in one order, with more scratch, instead of by whichever block comes first

  auto operator<=>(const CudnnAttentionKey&) const = default;
};

class CudnnAttention {
 public:
  /// Where a graph's tensors are on the device, those of AttentionTensor that are not numbers; 16 bytes divide every address.
  using Addresses = std::map<AttentionTensor, void*>;

  CudnnAttention(const CudnnAttentionKey& key, const CudnnTarget& target);

  /// Whether cuDNN has plans for both directions that fit into the memory that they are given.
  bool exists() const { return plans_.size() == 2; }
  /// Whether backward needs no dq_sums.
  bool is_deterministic() const { return deterministic_; }
  std::size_t forward_workspace_bytes() const { return plans_.at(0).workspace_bytes; }
  std::size_t backward_workspace_bytes() const { return plans_.at(1).workspace_bytes; }

  /// Run on the stream of `handle`.
  void forward(cudnnHandle_t handle, const Addresses& addresses, void* workspace) {
    execute(handle, plans_.at(0), addresses, workspace);
  }
  void backward(cudnnHandle_t handle, const Addresses& addresses, void* workspace) {
    execute(handle, plans_.at(1), addresses, workspace);
  }

 private:
  void execute(cudnnHandle_t handle, const CudnnPlan& plan, const Addresses& addresses, void* workspace);

  bool deterministic_;
  float scale_, one_ = 1;
  std::vector<CudnnDescriptor> graphs_;
  std::vector<CudnnPlan> plans_;  // forward, backward; or none
};

}  // namespace ab::cuda
