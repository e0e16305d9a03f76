#pragma once
// SPDX-License-Identifier: MIT
//
// A direct convolution compiled by oneDNN. Activations are NHWC on both sides; the kernels want weights in
// blocks of channels, so the KRSC weights (or their gradient) pass through a reorder, which is small beside
// them.

#include <cstddef>
#include <optional>
#include <unordered_map>

#include "engine/backend/cpu/conv.h"
#include "engine/backend/cpu/onednn.h"

namespace ab::cpu {

class ThreadContext;

/// Everything that decides which compiled convolution a call needs.
struct OneDnnConvKey {
  Conv2dSpec spec;
  ConvDirection direction = ConvDirection::forward;
  bool bias = false;
  int threads = 1;  ///< the division of work is compiled in
  bool operator==(const OneDnnConvKey&) const = default;
};

struct OneDnnConvKeyHash {
  std::size_t operator()(const OneDnnConvKey& key) const;
};

/// Belongs to one thread.
class OneDnnConv {
 public:
  OneDnnConv(const dnnl::engine& engine, const OneDnnConvKey& key);
  OneDnnConv(const OneDnnConv&) = delete;
  OneDnnConv& operator=(const OneDnnConv&) = delete;

  void run(ThreadContext& context, const ConvTensors& t);

 private:
  dnnl::primitive primitive_;
  std::optional<dnnl::reorder> reorder_;  ///< of the weights, when the kernel wants another layout
  bool writes_weights_;
  dnnl::memory x_, y_, bias_, weights_, inner_weights_, scratchpad_;
  std::size_t scratchpad_offset_ = 0;  ///< in the scratch buffer, behind the inner weights
  std::unordered_map<int, dnnl::memory> arguments_;
};

}  // namespace ab::cpu
