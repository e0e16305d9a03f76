#pragma once
// SPDX-License-Identifier: MIT
//
// Memory of one GPU, from the driver's stream-ordered pool, which keeps what is released for the next step.
// Every thread allocates, copies and releases in the order of its own stream, so nothing waits. A thread that
// hands a tensor to another thread calls synchronize(device) first.

#include <cuda_runtime_api.h>

#include <atomic>
#include <mutex>

#include "engine/core/memory.h"

namespace ab::cuda {

class CudaMemory final : public Memory {
 public:
  explicit CudaMemory(int device_index) : device_index_(device_index) {}

  void* allocate(std::size_t bytes) override;
  void release(void* block, std::size_t bytes) override;
  void set_zero(void* block, std::size_t bytes) override;
  void copy(void* to, const void* from, std::size_t bytes) override;
  void copy_from_host(void* to, const void* host, std::size_t bytes) override;
  void copy_to_host(void* host, const void* from, std::size_t bytes) override;
  std::unique_ptr<HostCopy> start_copy_to_host(const void* from, std::size_t bytes) override;
  MemoryStats stats() const override;
  void restart_peak() override { peak_bytes_ = live_bytes_.load(); }
  std::int64_t available() const override;

  /// Called by whoever is about to use the device; the first time, the pool is told to keep what is released, and not to
  /// let a stream wait for another because that has released a block which suits it.
  void prepare_pool();

  /// allocate and release in the order of a given stream. Where memory runs out, what the pool keeps is given back
  /// first.
  void* allocate_on(cudaStream_t stream, std::size_t bytes);
  void release_on(cudaStream_t stream, void* block, std::size_t bytes) noexcept;

 private:
  struct Sizes {
    std::size_t free, total;
  };
  static Sizes sizes();  ///< of the device that is current

  cudaMemPool_t pool() const;
  bool trim_pool(cudaStream_t stream);

  int device_index_;
  std::once_flag pool_is_prepared_;
  std::atomic<std::int64_t> live_bytes_{0}, peak_bytes_{0};
};

/// As ab::cuda_memory, with its own type.
CudaMemory& device_memory(int device_index);

}  // namespace ab::cuda
