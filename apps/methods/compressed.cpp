// SPDX-License-Identifier: MIT
#include "apps/methods/compressed.h"

namespace ab {

CompressionStart compression_start(const TrainConfig& config, std::int64_t asked, const LrSchedule& schedule) {
  return {
      .dense_steps = dense_steps(asked, schedule.total_steps), .gradients = gradient_wire(config), .seed = config.seed};
}

}  // namespace ab
