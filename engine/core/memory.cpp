// SPDX-License-Identifier: MIT
#include "engine/core/memory.h"

#include <malloc.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "engine/core/available_memory.h"

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
    const std::size_t rounded = round_up(bytes);
    {
      std::lock_guard lock(mutex_);
      stats_.live_bytes += static_cast<std::int64_t>(rounded);
      stats_.peak_bytes = std::max(stats_.peak_bytes, stats_.live_bytes);
      if (auto it = free_.find(rounded); it != free_.end() && !it->second.empty()) {
        void* block = it->second.back();
        it->second.pop_back();
        return block;
      }
    }
    void* block = std::aligned_alloc(kAlignment, rounded);
    AB_CHECK_KIND(communication, block, "out of memory: cannot allocate {} bytes on the CPU", rounded);
#ifdef AB_EMULATE_GPU
    const std::lock_guard lock(mutex_);
    handed_out_.insert(block);
#endif
    return block;
  }

  void release(void* block, std::size_t bytes) override {
    const std::size_t rounded = round_up(bytes);
    std::lock_guard lock(mutex_);
    stats_.live_bytes -= static_cast<std::int64_t>(rounded);
    if (kCacheBlocks) free_[rounded].push_back(block);
    else std::free(block);
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

  bool has_handed_out(const void* address) const {
    const std::lock_guard lock(mutex_);
    return handed_out_.contains(address);
  }

 private:
  static constexpr std::size_t kAlignment = 64;

  // Powers of two up to a page, then steps of 1/8 of the leading power: at most 12.5 % waste.
  static std::size_t round_up(std::size_t bytes) {
    const std::size_t power = std::bit_ceil(std::max(bytes, kAlignment));
    if (power <= 4096) return power;
    const std::size_t step = power / 16;
    return (bytes + step - 1) / step * step;
  }

  void free_cached() {
    for (auto& [size, blocks] : free_)
      for (void* block : blocks) std::free(block);
    free_.clear();
  }

  mutable std::mutex mutex_;
  std::map<std::size_t, std::vector<void*>> free_;
  std::set<const void*> handed_out_;  // ever; filled for the emulated GPU only
  MemoryStats stats_;
};

CpuMemory& cpu_memory() {
  // Leaked on purpose: tensors with static storage may outlive any destructor order we could choose.
  static CpuMemory& cpu = *new CpuMemory;
  return cpu;
}

}  // namespace

Memory& memory(Device device) { return device.kind == DeviceKind::cpu ? cpu_memory() : cuda_memory(device.index); }

#ifdef AB_EMULATE_GPU
bool is_host_block(const void* address) { return cpu_memory().has_handed_out(address); }
#endif

}  // namespace ab
