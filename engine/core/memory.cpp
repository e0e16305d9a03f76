// SPDX-License-Identifier: MIT
#include "engine/core/memory.h"

#include <malloc.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <vector>

#include "engine/core/machine.h"

namespace ab {
namespace {

// Address sanitizers see nothing wrong in a block that a cache hands out again: no caching there.
#if defined(__has_feature)
#define AB_CLANG_ADDRESS_SANITIZER __has_feature(address_sanitizer)
#endif
#if defined(__SANITIZE_ADDRESS__) || AB_CLANG_ADDRESS_SANITIZER
constexpr bool kCacheBlocks = false;
#else
constexpr bool kCacheBlocks = true;
#endif

constexpr std::size_t kAlignment = 64;

/// A copy that was complete when it was started.
class FinishedCopy final : public HostCopy {
 public:
  FinishedCopy(const void* from, std::size_t bytes) { std::memcpy(values_.data(), from, bytes); }
  const void* wait() override { return values_.data(); }

 private:
  alignas(std::max_align_t) std::array<std::byte, kHostCopyBytes> values_;
};

/// Host memory with free lists by rounded size. A released block is reused only for its own size class,
/// so a steady training loop allocates nothing after its first step.
class CpuMemory final : public Memory {
 public:
  ~CpuMemory() override { free_cached(); }

  void* allocate(std::size_t bytes) override {
    const std::size_t rounded = block_bytes({}, bytes);
    void* block = take_cached(rounded);
    if (!block) block = take_from_system(rounded);
    if (!block) {  // what was kept for other sizes may do
      {
        const std::lock_guard lock(mutex_);
        free_cached();
      }
      block = take_from_system(rounded);
    }
    if (!block)
      throw OutOfMemory(fmt::format(
          "out of memory: {} bytes more are not left on the CPU; lower --batch-size or --ranks, or raise a limit that a "
          "container or ulimit sets",
          rounded));
    return block;
  }

  void release(void* block, std::size_t bytes) override {
    const std::size_t rounded = block_bytes({}, bytes);
    std::lock_guard lock(mutex_);
    stats_.live_bytes -= static_cast<std::int64_t>(rounded);
    if (kCacheBlocks) free_[rounded].push_back(block);
    else give_back(block, rounded);
  }

  void set_zero(void* block, std::size_t bytes) override { std::memset(block, 0, bytes); }
  void copy(void* to, const void* from, std::size_t bytes) override { std::memcpy(to, from, bytes); }
  void copy_from_host(void* to, const void* host, std::size_t bytes) override {
    if (bytes > 0) std::memcpy(to, host, bytes);
  }
  void copy_to_host(void* host, const void* from, std::size_t bytes) override { std::memcpy(host, from, bytes); }
  std::unique_ptr<HostCopy> start_copy_to_host(const void* from, std::size_t bytes) override {
    return std::make_unique<FinishedCopy>(from, bytes);
  }

  MemoryStats stats() const override {
    std::lock_guard lock(mutex_);
    return stats_;
  }

  void restart_peak() override {
    std::lock_guard lock(mutex_);
    stats_.peak_bytes = stats_.live_bytes;
    free_cached();
    malloc_trim(0);
  }
  std::int64_t available() const override { return available_host_bytes(); }

  void bound(std::int64_t bytes) {
    const std::lock_guard lock(mutex_);
    most_from_system_ = bytes < kUnbounded - from_system_ ? from_system_ + bytes : kUnbounded;
  }
  static constexpr std::int64_t kUnbounded = std::numeric_limits<std::int64_t>::max();

 private:
  static constexpr std::int64_t kLarge = 1 << 16;

  void count(std::size_t bytes) {  // needs the mutex
    stats_.live_bytes += static_cast<std::int64_t>(bytes);
    stats_.peak_bytes = std::max(stats_.peak_bytes, stats_.live_bytes);
  }

  void* take_cached(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    const auto at = free_.find(bytes);
    if (at == free_.end() || at->second.empty()) return nullptr;
    void* const block = at->second.back();
    at->second.pop_back();
    count(bytes);
    return block;
  }

  /// Null where there is not as much.
  void* take_from_system(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    if (!may_take(static_cast<std::int64_t>(bytes))) return nullptr;
    void* const block = std::aligned_alloc(kAlignment, bytes);
    if (!block) return nullptr;
    from_system_ += static_cast<std::int64_t>(bytes);
    count(bytes);
    return block;
  }

  /// Pages count as used once they are written to: neither what was taken nor what is left says enough alone.
  bool may_take(std::int64_t bytes) const {
    if (most_from_system_ == kUnbounded) return true;
    return from_system_ + bytes <= most_from_system_ &&
           (bytes < kLarge || bytes + kBytesForLibraries <= bytes_until_the_end());
  }

  void give_back(void* block, std::size_t bytes) {
    from_system_ -= static_cast<std::int64_t>(bytes);
    std::free(block);
  }

  void free_cached() {
    for (auto& [size, blocks] : free_)
      for (void* block : blocks) give_back(block, size);
    free_.clear();
  }

  mutable std::mutex mutex_;
  std::map<std::size_t, std::vector<void*>> free_;
  MemoryStats stats_;
  std::int64_t from_system_ = 0, most_from_system_ = kUnbounded;
};

CpuMemory& cpu_memory() {
  // Leaked on purpose: tensors with static storage may outlive any destructor order we could choose.
  static CpuMemory& cpu = *new CpuMemory;
  return cpu;
}

}  // namespace

BoundedHostMemory::BoundedHostMemory(std::int64_t bytes) {
  const bool known = bytes < CpuMemory::kUnbounded;
  cpu_memory().bound(known ? std::max<std::int64_t>(0, bytes - kBytesForLibraries) : CpuMemory::kUnbounded);
}
BoundedHostMemory::~BoundedHostMemory() { cpu_memory().bound(CpuMemory::kUnbounded); }

// On a CPU powers of two up to a page, then steps of 1/8 of the leading power: at most 12.5 % waste.
std::size_t block_bytes(Device device, std::size_t bytes) {
  if (!device.is_like_cpu()) return bytes;
  const std::size_t power = std::bit_ceil(std::max(bytes, kAlignment));
  if (power <= 4096) return power;
  const std::size_t step = power / 16;
  return (bytes + step - 1) / step * step;
}

Memory& memory(Device device) {
  switch (device.kind) {
    case DeviceKind::cpu: return cpu_memory();
    case DeviceKind::cuda: return cuda_memory(device.index);
    case DeviceKind::shapes: return shapes_memory(device.index);
  }
  throw Bug("bug in abtrain: a device of no kind");
}

}  // namespace ab
