#pragma once
// SPDX-License-Identifier: MIT
//
// What the records of methods share whose gradients are compressed after dense steps (engine/sync/compressed_gradients.h).

#include "apps/methods/method.h"
#include "engine/sync/compressed_gradients.h"

namespace ab {

/// The setting rank of a method whose gradients have factors.
template <class Options> void declare_gradient_rank(const Section<Options>& section) {
  section
      .number("rank", &Options::rank, 0, 65536,
              "r: columns of both factors of a gradient; below 1: this share of its smaller side")
      .above_low = true;
}

inline CompressionStart compression_start(const TrainConfig& config, const LrSchedule& schedule) {
  return {.dense_steps = dense_steps(config.dense_steps, schedule.total_steps),
          .gradients = gradient_wire(config),
          .seed = config.seed};
}

}  // namespace ab
