#pragma once
// SPDX-License-Identifier: MIT
//
// Files that ask a run for something, where signals cannot reach it: `touch RUN/stop` saves a checkpoint and ends the
// run to be resumed, `touch RUN/save` saves one and training goes on. A file is removed when it has been seen.

#include <chrono>
#include <string>

namespace ab {

/// For the rank that keeps the run folder.
class RequestFiles {
 public:
  static constexpr const char *kStop = "stop", *kSave = "save";

  /// Removes requests that somebody made before the run began.
  explicit RequestFiles(std::string folder);

  /// Looks for them, at most once a second; calls request_stop() for one of them. Returns whether a checkpoint is asked for.
  bool look();

 private:
  bool take(const char* name) const;

  std::string folder_;
  std::chrono::steady_clock::time_point next_look_{};
};

}  // namespace ab
