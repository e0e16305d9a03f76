#pragma once
// SPDX-License-Identifier: MIT
//
// MPI as one process uses it: started once, called by one thread at a time, and called often enough. Messages move only
// while MPI is called, so a thread of its own calls it while a collective is in flight and the ranks' threads compute.

#include <atomic>
#include <condition_variable>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

namespace ab {

/// MPI lives once per process: from first use to normal exit. After a failure the peers may never reach
/// MPI_Finalize, so it is left out; the launcher then ends them.
class MpiLibrary {
 public:
  static MpiLibrary& instance();
  void mark_failed() noexcept { failed_ = true; }
  /// The same with its cause, which every rank's thread that waits shall leave with. Needs the lock, as cause() does.
  void mark_failed(std::exception_ptr cause) noexcept {
    failed_ = true;
    if (!cause_) cause_ = std::move(cause);
  }
  const std::exception_ptr& cause() const noexcept { return cause_; }
  /// Another world begins.
  void forget_cause() noexcept { cause_ = nullptr; }
  bool failed() const noexcept { return failed_; }

  /// Held around every call of MPI.
  using Lock = std::unique_lock<std::mutex>;
  Lock lock() { return Lock(mutex_); }

  /// Calls `advance` again and again, under the lock, until it returns true: nothing is in flight any more. `who` names
  /// it, for stop_advancing(). Both need the lock. `advance` must not throw.
  void keep_advancing(const void* who, std::function<bool()> advance);
  void stop_advancing(const void* who) { in_flight_.erase(who); }

  MpiLibrary(const MpiLibrary&) = delete;
  MpiLibrary& operator=(const MpiLibrary&) = delete;

 private:
  MpiLibrary();
  ~MpiLibrary();
  void advance_all(const std::stop_token& stop);

  bool ours_ = false;
  std::atomic<bool> failed_ = false;
  std::exception_ptr cause_;
  std::mutex mutex_;
  std::condition_variable_any started_;
  std::map<const void*, std::function<bool()>> in_flight_;
  std::jthread advancing_;
};

}  // namespace ab
