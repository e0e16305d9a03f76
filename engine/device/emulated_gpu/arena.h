#pragma once
// SPDX-License-Identifier: MIT
//
// The memory of the emulated GPU, which finds on a machine without one what would fail on a real one. It is a range
// of addresses that nobody may touch, except while a kernel runs: code that reaches for device memory from
// the host dies at that very line. Blocks that are handed out or given back hold NaN, so that a value which nobody
// wrote, or which is gone, shows in the results.
// It also counts how often the host has had to wait for a real GPU.
// Ranks may be threads that share a GPU: while one of them runs a kernel, a stray access by another goes unseen.

#include <atomic>
#include <cstddef>
#include <map>
#include <mutex>

#include "engine/core/memory.h"

namespace ab::emulated_gpu {

/// What each emulated GPU has, unless AB_EMULATED_GPU_BYTES says less; pages that were never touched cost nothing.
inline constexpr std::size_t kArenaBytes = std::size_t{16} << 30;

/// Is told what works on an arena (kernel_traffic.h). While there is one, memory that kernels may touch is not opened for them:
/// that is up to it.
class ArenaWatch {
 public:
  virtual ~ArenaWatch() = default;
  /// `kernel` is the type of what runs, as typeid has it; memory from `base` belongs to it until kernel_ends().
  virtual void kernel_begins(const char* kernel, std::byte* base, std::size_t bytes) = 0;
  virtual void kernel_ends() = 0;
  /// The GPU's own copies and zeros.
  virtual void moved(const char* how, std::size_t read, std::size_t written) = 0;
};

class Arena final : public Memory {
 public:
  explicit Arena(int device_index);

  void* allocate(std::size_t bytes) override;
  void release(void* block, std::size_t bytes) override;
  void set_zero(void* block, std::size_t bytes) override;
  void copy(void* to, const void* from, std::size_t bytes) override;
  void copy_from_host(void* to, const void* host, std::size_t bytes) override;
  void copy_to_host(void* host, const void* from, std::size_t bytes) override;
  std::unique_ptr<HostCopy> start_copy_to_host(const void* from, std::size_t bytes) override;
  MemoryStats stats() const override;
  void restart_peak() override;
  std::int64_t available() const override { return limit() - stats().live_bytes; }

  /// The live bytes there may be.
  void set_limit(std::int64_t bytes);
  std::int64_t limit() const;

  /// What a routine of the GPU itself reads: nobody waits for that.
  void read(void* host, const void* from, std::size_t bytes) const;
  /// How often the host has found the GPU with nothing left to do: by copy_to_host(), by synchronize(), and when it
  /// looked at a started copy before it had issued anything else.
  std::int64_t host_waits() const { return host_waits_; }
  void count_host_wait() { ++host_waits_; }
  std::int64_t issued() const { return issued_; }
  std::int64_t graph_launches() const { return graph_launches_; }
  void count_graph_launch() { ++graph_launches_; }

  /// Each open() allows access until its close(). `kernel` is the type of what runs, as typeid has it.
  void open(const char* kernel);
  void close();
  /// From now on; nullptr: nobody.
  void set_watch(ArenaWatch* watch) { watch_ = watch; }

 private:
  std::byte* behind(const void* block) const;
  std::size_t take_free_range(std::size_t bytes);
  void protect(int rights);

  Device device_;
  std::int64_t limit_ = kArenaBytes;
  std::byte* base_;                          // of the addresses that are given out
  std::byte* backdoor_;                      // the same pages at other addresses, always open to this class
  std::size_t used_ = 0;                     // bytes from the base that have ever been handed out
  std::map<std::size_t, std::size_t> free_;  // below used_: offset and size, neighbours merged
  int users_ = 0;                            // how many have it open
  std::atomic<std::int64_t> issued_ = 0;     // kernels and copies
  std::atomic<std::int64_t> host_waits_ = 0, graph_launches_ = 0;
  ArenaWatch* watch_ = nullptr;
  MemoryStats stats_;
  mutable std::mutex mutex_;
};

/// The memory of one GPU; throws Error(communication) when there is none of that number.
Arena& arena(int device_index);

}  // namespace ab::emulated_gpu
