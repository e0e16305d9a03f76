#pragma once
// SPDX-License-Identifier: MIT
//
// Copies between a device and ordinary host memory through two pinned buffers: while the GPU's copy engine
// works on one, the CPU fills or empties the other. Copying pageable memory directly would stall the stream.

#include <array>
#include <cstddef>

#include "engine/device/cuda/handles.h"

namespace ab::cuda {

class PinnedStaging {
 public:
  PinnedStaging();

  /// Returns as soon as `host` has been read; the device side follows in the order of `stream`.
  void to_device(void* device, const void* host, std::size_t bytes, cudaStream_t stream);
  /// Returns when `host` is complete.
  void to_host(void* host, const void* device, std::size_t bytes, cudaStream_t stream);

 private:
  static constexpr std::size_t kSlotBytes = std::size_t{4} << 20;

  struct Slot {
    PinnedBuffer buffer;
    Event copied;  // the last transfer that uses the buffer
  };
  std::array<Slot, 2> slots_;
  std::size_t next_ = 0;
};

}  // namespace ab::cuda
