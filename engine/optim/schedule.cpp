// SPDX-License-Identifier: MIT
#include "engine/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace ab {

double LrSchedule::at(std::int64_t step) const {
  if (step < warmup_steps)
    return start + (peak - start) * static_cast<double>(step) / static_cast<double>(warmup_steps);
  const double length = static_cast<double>(std::max<std::int64_t>(1, total_steps - warmup_steps));
  const double progress = std::min(1.0, static_cast<double>(step - warmup_steps) / length);
  switch (kind) {
    case Kind::constant: return peak;
    case Kind::step: return peak * std::pow(step_factor, static_cast<double>(step / step_length));
    case Kind::cosine: return end + (peak - end) * 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
    case Kind::linear: return peak + (end - peak) * progress;
  }
  return peak;
}

}  // namespace ab
