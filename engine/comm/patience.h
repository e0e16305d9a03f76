#pragma once
// SPDX-License-Identifier: MIT
//
// How long a rank has waited for its peers.

#include <algorithm>
#include <chrono>

namespace ab {

/// Counts the time between two looks as half a second at most: where it was more, the program itself was stopped, as by a batch
/// system that suspends a job, and its peers with it.
class Patience {
 public:
  using Clock = std::chrono::steady_clock;
  /// Time after which a rank that waits looks again.
  static constexpr std::chrono::milliseconds kLook{250};

  explicit Patience(Clock::duration limit) : limit_(limit) {}

  bool is_over() {
    const auto now = Clock::now();
    waited_ += std::min<Clock::duration>(now - last_look_, 2 * kLook);
    last_look_ = now;
    return waited_ > limit_;
  }

 private:
  Clock::duration limit_, waited_{};
  Clock::time_point last_look_ = Clock::now();
};

}  // namespace ab
