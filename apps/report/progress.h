#pragma once
// SPDX-License-Identifier: MIT
//
// What a person sees while a run goes on: one line that is redrawn on a terminal, and a line now and then
// where the output goes to a file. All of it on stderr, so that stdout keeps the results.

#include <chrono>
#include <cstdint>

#include "engine/io/metrics_log.h"

namespace ab {

class Progress {
 public:
  Progress();
  void step(const StepMetrics& metrics, std::int64_t total_steps);
  void epoch(const EpochMetrics& metrics);

 private:
  void clear_line();

  bool terminal_;
  bool line_open_ = false;
  std::int64_t first_step_ = -1;  // before the first one told of: a resumed run does not begin at 0
  std::chrono::steady_clock::time_point start_, last_line_;
};

}  // namespace ab
