#pragma once
// SPDX-License-Identifier: MIT
//
// One run per folder: a lock that lives as long as its process. The file FOLDER/run.lock names the owner
// (host, process, job of the batch system) and is locked with flock, which ends with the process however it
// ends. Disks without flock, and other hosts where it may not reach, are judged by the name and by the file's time, which
// the owner renews: an owner that is gone from this host, or that was the same job before it was requeued, is succeeded;
// any other when it has given no sign of life for ten minutes, by the file system's own clock.

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace ab {

/// Held from construction to destruction, by one rank of the run.
class RunLock {
 public:
  static constexpr std::chrono::seconds kRenewal{30};   ///< between two signs of life
  static constexpr std::chrono::minutes kPatience{10};  ///< with an owner elsewhere that gives none

  /// `folder` exists. Throws Error(config) naming the owner when another run holds it, and when the lock
  /// cannot be written.
  explicit RunLock(const std::string& folder, std::chrono::milliseconds renewal = kRenewal);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  void renew(std::chrono::milliseconds renewal);

  std::string path_;
  int descriptor_ = -1;
  std::mutex mutex_;
  std::condition_variable ending_;
  bool ends_ = false;
  std::thread renews_;
};

}  // namespace ab
