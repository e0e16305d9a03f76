#pragma once
// SPDX-License-Identifier: MIT
//
// One run per folder: a lock that lives as long as its process. The file FOLDER/run.lock names the owner
// (host, process, job of the batch system) and is locked with flock, which ends with the process however it
// ends. Disks without flock, and other hosts where it may not reach, are judged by the name: an owner that is
// gone from this host, or that was the same job before it was requeued, is succeeded; any other is believed
// to be running, another step of the same Slurm job too.

#include <string>

namespace ab {

/// Held from construction to destruction, by one rank of the run.
class RunLock {
 public:
  /// `folder` exists. Throws Error(config) naming the owner when another run holds it, and when the lock
  /// cannot be written.
  explicit RunLock(const std::string& folder);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  std::string path_;
  int descriptor_ = -1;
};

}  // namespace ab
