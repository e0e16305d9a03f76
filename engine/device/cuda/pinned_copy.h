#pragma once
// SPDX-License-Identifier: MIT
//
// Copies of a few values to the host that nobody waits for yet (engine/core/host_read.h). Each lands in a small pinned
// buffer, with an event behind it; buffers are used again, since to make or free one would wait for the device.

#include <memory>
#include <vector>

#include "engine/core/memory.h"
#include "engine/device/cuda/handles.h"

namespace ab::cuda {

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
