#pragma once
// SPDX-License-Identifier: MIT
//
// What the CPU backend keeps per thread: a oneDNN stream, one scratch buffer and the compiled convolutions.
// A rank may be a thread, so nothing here is shared: no locks, and no rank waits for another.

#include <cstddef>
#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>

#include "engine/backend/backend.h"
#include "engine/backend/cpu/onednn_conv.h"

namespace ab::cpu {

class ThreadContext {
 public:
  /// The context of the calling thread.
  static ThreadContext& current();

  ~ThreadContext();
  ThreadContext(const ThreadContext&) = delete;
  ThreadContext& operator=(const ThreadContext&) = delete;

  const dnnl::engine& engine() const { return engine_; }
  const dnnl::stream& stream() const { return stream_; }

  /// At least `bytes` bytes, aligned to 64, valid until the next call of scratch() on this thread.
  std::byte* scratch(std::size_t bytes);

  /// The compiled convolution, made at first use.
  OneDnnConv& conv(const OneDnnConvKey& key);

 private:
  ThreadContext();

  dnnl::engine engine_;
  dnnl::stream stream_;
  std::byte* scratch_ = nullptr;
  std::size_t scratch_bytes_ = 0;
  std::unordered_map<OneDnnConvKey, OneDnnConv, OneDnnConvKeyHash> convs_;
};

}  // namespace ab::cpu
