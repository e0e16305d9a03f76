// SPDX-License-Identifier: MIT
//
// Memory of the device of shapes: addresses that nobody can read, and a count of what is taken. Blocks take as many bytes as
// on the device that is stood for, so that the largest number of bytes is that of the same work there.
#include <algorithm>

#include "engine/core/memory.h"
#include "engine/device/shapes/shapes.h"

namespace ab {
namespace {

/// Bytes that a run has copied to the host and only compares with what is finite.
class ZeroCopy final : public HostCopy {
 public:
  const void* wait() override { return zeros_; }

 private:
  alignas(std::max_align_t) std::byte zeros_[kHostCopyBytes]{};
};

constexpr std::size_t kGpuAlignment = 256;  // of a GPU's blocks, by which kernels choose their forms

class ShapesMemory final : public Memory {
 public:
  explicit ShapesMemory(Device device) : device_(device) {}

  void* allocate(std::size_t bytes) override {
    const std::size_t taken = block_bytes(device_, bytes);
    stats_.live_bytes += static_cast<std::int64_t>(taken);
    stats_.peak_bytes = std::max(stats_.peak_bytes, stats_.live_bytes);
    void* const block = reinterpret_cast<void*>(next_);
    next_ += (taken + kGpuAlignment - 1) / kGpuAlignment * kGpuAlignment;
    return block;
  }
  void release(void* /*block*/, std::size_t bytes) override {
    stats_.live_bytes -= static_cast<std::int64_t>(block_bytes(device_, bytes));
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

  void restart() {
    if (scratch_) release(scratch_, scratch_bytes_);
    scratch_ = nullptr, scratch_bytes_ = 0;
  }
  void hold_scratch(std::size_t bytes) {
    if (bytes <= scratch_bytes_) return;
    if (scratch_) release(scratch_, scratch_bytes_);
    scratch_ = allocate(bytes), scratch_bytes_ = bytes;
  }

 private:
  Device device_;
  MemoryStats stats_;
  void* scratch_ = nullptr;
  std::size_t scratch_bytes_ = 0;
  // No address of a process on today's machines: x86-64 has 47 bits of them unless asked for 56, Arm 48 or 52.
  std::uintptr_t next_ = std::uintptr_t{1} << 56;
};

/// As a CPU's, it outlives whatever is static.
ShapesMemory& of_thread(Device device) {
  static thread_local ShapesMemory &cpu = *new ShapesMemory(kShapesOfCpu), &gpu = *new ShapesMemory(kShapesOfGpu);
  return device == kShapesOfCpu ? cpu : gpu;
}

}  // namespace

Memory& shapes_memory(int device_index) { return of_thread({DeviceKind::shapes, device_index}); }

void restart_shapes(Device device) { of_thread(device).restart(); }
void hold_shapes_scratch(Device device, std::size_t bytes) { of_thread(device).hold_scratch(bytes); }

}  // namespace ab
