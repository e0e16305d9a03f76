#pragma once
// SPDX-License-Identifier: MIT
//
// A capture that is under way on the calling thread's stream (engine/device/graph.h). Until it ends the stream takes
// no part in memory management: an allocation there would become a part of the graph, and blocks from before the
// capture cannot be freed there. So blocks come from a stream beside it, and go when the capture has ended.

#include <vector>

#include "engine/device/cuda/runtime.h"

namespace ab::cuda {

class CudaMemory;
class ThreadStream;

class StreamCapture {
 public:
  /// Begins. Other threads may go on allocating and copying on streams of theirs.
  explicit StreamCapture(ThreadStream& stream);
  /// Ends; what was captured is dropped, unless finish() has returned it.
  ~StreamCapture();
  StreamCapture(const StreamCapture&) = delete;
  StreamCapture& operator=(const StreamCapture&) = delete;

  /// Ends; what was captured.
  CapturedGraph finish();

  void* allocate(CudaMemory& memory, std::size_t bytes) const;
  void release_at_end(void* block, std::size_t bytes) { released_.push_back({block, bytes}); }

 private:
  struct Block {
    void* address;
    std::size_t bytes;
  };

  ThreadStream& stream_;
  Stream beside_;
  std::vector<Block> released_;
};

}  // namespace ab::cuda
