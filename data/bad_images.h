#pragma once
// SPDX-License-Identifier: MIT
//
// The images of a run that could not be read or decoded: loaders go on without them and write them down here.

#include <cstdint>
#include <mutex>
#include <set>
#include <string>

namespace ab {

/// May be used by many threads.
class BadImages {
 public:
  /// More than `most` end the run.
  explicit BadImages(std::int64_t most) : most_(most) {}

  /// Counts the image `name` unless it is known, and says on stderr why it is bad and what comes `then`; of many it says the
  /// first ten. Throws Error(data) when they are more than `most`.
  void add(const std::string& name, const std::string& reason, const char* then);
  std::set<std::string> names() const;
  /// Adds those of all ranks. Throws Error(data) when `all` are more than `most`: alike where `all` is.
  void add_all(const std::set<std::string>& all);

 private:
  void check(std::int64_t count, const std::string& name) const;

  const std::int64_t most_;
  mutable std::mutex mutex_;
  std::set<std::string> names_;
  int told_ = 0;  // on stderr
};

}  // namespace ab
