#pragma once
// SPDX-License-Identifier: MIT
//
// Copies between a device and ordinary host memory through pinned buffers. Copying pageable memory directly would stall the
// stream.

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include "engine/core/memory.h"
#include "engine/device/cuda/runtime.h"

namespace ab::cuda {

/// Through two buffers: while the GPU's copy engine works on one, the CPU fills or empties the other.
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

/// Copies of a few values to the host that nobody waits for yet (engine/core/tensor.h): each lands in a small pinned buffer,
/// with an event behind it. Buffers are used again, since to make or free one would wait for the device.
struct PinnedSlot {
  PinnedSlot();
  PinnedBuffer buffer;
  Event copied;
};

/// The slots of one thread that are not in use.
using PinnedSlots = std::vector<std::unique_ptr<PinnedSlot>>;

/// A copy in the order of `stream`, through one of `slots`, which gets it back.
std::unique_ptr<HostCopy> start_pinned_copy(const std::shared_ptr<PinnedSlots>& slots, const void* from,
                                            std::size_t bytes, cudaStream_t stream);

}  // namespace ab::cuda
