#pragma once
// SPDX-License-Identifier: MIT
//
// Memory of a device. Blocks are cached: training allocates the same sizes every step, and asking the
// system for fresh pages each time would cost more than many of the operations themselves.

#include <cstddef>
#include <cstdint>
#include <memory>

#include "engine/core/dtype.h"

namespace ab {

/// A device has less memory left than was asked for.
class OutOfMemory : public Error {
 public:
  explicit OutOfMemory(const std::string& message) : Error(ErrorKind::communication, message) {}
};

struct MemoryStats {
  std::int64_t live_bytes = 0;  ///< handed out and not yet released
  std::int64_t peak_bytes = 0;  ///< the largest live_bytes so far, or since restart_peak()
};

/// The most that one HostCopy takes.
inline constexpr std::size_t kHostCopyBytes = 256;

/// A copy to host memory that is under way.
class HostCopy {
 public:
  virtual ~HostCopy() = default;
  /// Waits for the copy, and for nothing that was issued after it. The bytes stay as long as this lives.
  virtual const void* wait() = 0;
};

/// Allocation and transfer on one device. Safe to use from several threads.
class Memory {
 public:
  virtual ~Memory() = default;
  /// At least `bytes` bytes, aligned to 64. Contents are undefined.
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void release(void* block, std::size_t bytes) = 0;
  virtual void set_zero(void* block, std::size_t bytes) = 0;
  /// Copies within this device.
  virtual void copy(void* to, const void* from, std::size_t bytes) = 0;
  /// Copies between this device and host memory; on return the host side may be reused.
  virtual void copy_from_host(void* to, const void* host, std::size_t bytes) = 0;
  virtual void copy_to_host(void* host, const void* from, std::size_t bytes) = 0;
  /// Issues a copy of a few values and returns (engine/core/tensor.h). It is waited for, if at all, and destroyed on
  /// the thread that started it.
  virtual std::unique_ptr<HostCopy> start_copy_to_host(const void* from, std::size_t bytes) = 0;
  virtual MemoryStats stats() const = 0;
  /// Lets peak_bytes begin anew, and gives the system back what is kept for reuse on a CPU.
  virtual void restart_peak() = 0;
  /// Bytes that the device still has for this process; the largest number where nobody tells.
  virtual std::int64_t available() const = 0;
};

/// The memory of `device`; throws Error(communication) when the device is not there.
Memory& memory(Device device);

/// Implemented by engine/device/cuda, or by its stub in builds without CUDA.
Memory& cuda_memory(int device_index);
/// That of this thread, for a CPU or for a GPU (engine/device/shapes/shapes.h).
Memory& shapes_memory(int device_index);

/// Bytes that a block of so many bytes takes of the memory of `device`, or of the one that shapes stand for.
std::size_t block_bytes(Device device, std::size_t bytes);

}  // namespace ab
