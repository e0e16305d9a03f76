#pragma once
// SPDX-License-Identifier: MIT
//
// Learning-rate schedules: pure functions of the number of updates done.

#include <cstdint>

namespace ab {

struct LrSchedule {
  enum class Kind { constant, step, cosine, linear };

  Kind kind = Kind::constant;
  double peak = 0.1;                 ///< the rate after warm-up
  double start = 0.0;                ///< the rate of the first update when there is a warm-up
  double end = 0.0;                  ///< cosine, linear: the rate that the last update approaches
  std::int64_t warmup_steps = 0;     ///< linear from start to peak
  std::int64_t total_steps = 1;      ///< cosine, linear: length of the run, warm-up included
  std::int64_t step_length = 1;      ///< step: updates between two drops
  double step_factor = 0.1;          ///< step: what a drop multiplies the rate by
  std::int64_t steps_per_epoch = 1;  ///< of the run: changes no rate, but some methods count in epochs

  /// The rate of the update that follows `step` updates.
  ///   warm-up: start + (peak − start) · step / warmup_steps
  ///   cosine:  end + (peak − end) · (1 + cos(π (step − warmup) / (total − warmup))) / 2
  ///   linear:  peak + (end − peak) · (step − warmup) / (total − warmup)
  ///   step:    peak · step_factor^floor(step / step_length)
  double at(std::int64_t step) const;
};

}  // namespace ab
