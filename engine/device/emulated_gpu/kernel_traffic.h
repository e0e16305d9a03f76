#pragma once
// SPDX-License-Identifier: MIT
//
// What our kernels read and write: found by what they touch, not by what they declare. While a KernelTraffic lives, memory
// of its emulated GPU stays closed when a kernel begins, and the first read and the first write of each page open that
// page. So a kernel counts whatever it touches once, as if caches held it for the kernel's time, in whole pages of 4 KiB;
// a page that it writes before it reads counts as written alone. The vendors' routines count for nothing.
//
//   emulated_gpu::KernelTraffic traffic(device.index);
//   training.step();
//   for (const auto& [kernel, bytes] : traffic.by_kernel()) …
//
// For one thread that uses that GPU, on x86-64 Linux; one lives at a time.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "engine/device/emulated_gpu/arena.h"

namespace ab::emulated_gpu {

struct TouchedBytes {
  std::int64_t launches = 0, read = 0, written = 0;
};

class TouchedPages;

class KernelTraffic final : private ArenaWatch {
 public:
  /// Throws Error(config) where a page's first write cannot be told from a read.
  explicit KernelTraffic(int device_index);
  ~KernelTraffic() override;
  KernelTraffic(const KernelTraffic&) = delete;
  KernelTraffic& operator=(const KernelTraffic&) = delete;

  /// By the names of functors; copies within the device are "copy", zeros "zero".
  const std::map<std::string, TouchedBytes>& by_kernel() const { return by_kernel_; }

 private:
  void kernel_begins(const char* kernel, std::byte* base, std::size_t bytes) override;
  void kernel_ends() override;
  void moved(const char* how, std::size_t read, std::size_t written) override { count(how, read, written); }
  void count(const std::string& kernel, std::size_t read, std::size_t written);

  int device_index_;
  std::string kernel_;
  std::unique_ptr<TouchedPages> pages_;
  std::map<std::string, TouchedBytes> by_kernel_;
};

}  // namespace ab::emulated_gpu
