#pragma once
// SPDX-License-Identifier: MIT
//
// Data on its way to a GPU while the GPU computes. A slot is a block of pinned host memory and one of device memory.
// Copies from the one to the other run on a stream of their own; events order them with the work of the thread in
// both directions, so that neither the host nor the copies wait for what they do not need:
//
//   fill slot.host() → start() → acquire() → issue work that reads the block → release() → fill slot.host() → …
//
// Two slots in turn keep one block on its way while the one before is read. A slot belongs to the thread that made it.

#include <cstddef>
#include <memory>

#include "engine/core/tensor.h"

namespace ab {

class UploadSlot {
 public:
  virtual ~UploadSlot() = default;
  /// The host memory, to be filled before start(), when the block sent last was released; waits for the copy from it.
  virtual std::byte* host() = 0;
  /// Starts to copy the first `bytes` bytes, as soon as what was issued until release() has read the block.
  virtual void start(std::size_t bytes) = 0;
  /// The block on the device, uint8, for work that this thread issues before release(). The work comes after the copy.
  virtual const Tensor& acquire() = 0;
  virtual void release() = 0;
};

/// A slot of that many bytes on both sides. Implemented by engine/device/cuda, or by its stub in builds without CUDA.
/// Throws Error(communication) when the GPU is not there or memory is short.
std::unique_ptr<UploadSlot> cuda_upload_slot(int device_index, std::size_t bytes);

}  // namespace ab
