#pragma once
// SPDX-License-Identifier: MIT
//
// Fused attention, planned by cuDNN for one device from the graphs of engine/backend/cuda/attention_graph.h.

#include <cstddef>
#include <map>
#include <vector>

#include "engine/backend/cuda/attention_graph.h"
#include "engine/backend/cuda/cudnn_graph.h"

namespace ab::cuda {

/// Everything plans depend on, besides the device.
struct CudnnAttentionKey {
  AttentionSpec spec;
  bool deterministic = false;  ///< backward adds up dQ in one order

  bool operator==(const CudnnAttentionKey&) const = default;
};

struct CudnnAttentionKeyHash {
  std::size_t operator()(const CudnnAttentionKey& key) const;
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
