// SPDX-License-Identifier: MIT
//
// Memory of the device of shapes: addresses that nobody can read, and a count of what is taken. Blocks take as many bytes as
// on a CPU, so that the largest number of bytes is that of the same work there.
#include <algorithm>

#include "engine/core/memory.h"

namespace ab {
namespace {

/// Bytes that a run has copied to the host and only compares with what is finite.
class ZeroCopy final : public HostCopy {
 public:
  const void* wait() override { return zeros_; }

 private:
  alignas(std::max_align_t) std::byte zeros_[kHostCopyBytes]{};
};

class ShapesMemory final : public Memory {
 public:
  void* allocate(std::size_t bytes) override {
    const std::size_t taken = cpu_block_bytes(bytes);
    stats_.live_bytes += static_cast<std::int64_t>(taken);
    stats_.peak_bytes = std::max(stats_.peak_bytes, stats_.live_bytes);
    void* const block = reinterpret_cast<void*>(next_);
    next_ += taken;
    return block;
  }
  void release(void* /*block*/, std::size_t bytes) override {
    stats_.live_bytes -= static_cast<std::int64_t>(cpu_block_bytes(bytes));
  }
  void set_zero(void* /*block*/, std::size_t /*bytes*/) override {}
  void copy(void* /*to*/, const void* /*from*/, std::size_t /*bytes*/) override {}
  void copy_from_host(void* /*to*/, const void* /*host*/, std::size_t /*bytes*/) override {}
  void copy_to_host(void* /*host*/, const void* /*from*/, std::size_t bytes) override {
    throw Bug(
        fmt::format("bug in abtrain: a rehearsal was asked for {} bytes of numbers, of which it has none", bytes));
  }
  std::unique_ptr<HostCopy> start_copy_to_host(const void* /*from*/, std::size_t /*bytes*/) override {
    return std::make_unique<ZeroCopy>();
  }
  MemoryStats stats() const override { return stats_; }
  void restart_peak() override { stats_.peak_bytes = stats_.live_bytes; }
  std::int64_t available() const override { return INT64_MAX; }

 private:
  MemoryStats stats_;
  // No address of a process on today's machines: x86-64 has 47 bits of them unless asked for 56, Arm 48 or 52.
  std::uintptr_t next_ = std::uintptr_t{1} << 56;
};

}  // namespace

Memory& shapes_memory() {
  static thread_local ShapesMemory& memory = *new ShapesMemory;  // as a CPU's, it outlives whatever is static
  return memory;
}

}  // namespace ab
