#pragma once
// SPDX-License-Identifier: MIT
//
// The progress of a run, or of work on images, as a person sees it: one line that is redrawn on a terminal, and a line now and then
// where the output goes to a file. All of it on stderr, so that stdout keeps the results. A line is redrawn by a carriage
// return and blanks, which every terminal obeys, and never touches the last column, so that none scrolls.

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

#include "engine/io/metrics_log.h"

namespace ab {

class Progress {
 public:
  /// `runs`: this one and as many steps of each that follows. Of several, a line says early how long all will take.
  explicit Progress(int runs = 1);
  ~Progress() { draw(""); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// A resumed run goes on after `step`.
  void resume(std::int64_t step) { first_step_ = step; }
  void step(const StepMetrics& metrics, std::int64_t total_steps);
  void epoch(const EpochMetrics& metrics);
  /// Of a command that goes through images; many threads may call it.
  void images(std::int64_t done, std::int64_t total);

 private:
  void draw(const std::string& text);
  void estimate(const StepMetrics& metrics, std::int64_t total_steps);

  bool terminal_;
  int drawn_ = 0;                // columns of the line as it is on the terminal
  std::int64_t first_step_ = 0;  // where training began when the clock did
  int runs_;                     // 1 once a line has said how long all take
  std::int64_t timed_from_ = 0;  // the first step that told its time
  std::chrono::steady_clock::time_point timed_since_;
  std::chrono::steady_clock::time_point start_, last_line_;
  std::mutex mutex_;  // of images()
};

}  // namespace ab
