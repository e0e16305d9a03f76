#pragma once
// SPDX-License-Identifier: MIT
//
// What the records of methods share whose gradients are compressed after dense steps (engine/sync/compressed_gradients.h).

#include <functional>

#include "apps/methods/method.h"
#include "apps/methods/preset.h"
#include "engine/sync/compressed_gradients.h"

namespace ab {

constexpr double kMostSteps = 1e15;  // "for ever", and exact in a double

/// The setting dense_steps of such a method.
template <class Options> void declare_dense_steps(const Section<Options>& section) {
  section.number("dense_steps", &Options::dense_steps, -1, kMostSteps,
                 "steps at the start that exchange whole gradients; -1: a tenth of the run");
}

/// The settings rank and ratio of a method whose gradients have factors.
template <class Options> void declare_gradient_rank(const Section<Options>& section) {
  Setting& rank = section.number("rank", &Options::rank, 1, 65536, "r: columns of both factors of a gradient");
  rank.set = [store = rank.set](TrainConfig& config, const Value& value) {
    store(config, value);
    config.method_options.template of<Options>().ratio = 0;
  };
  section.number("ratio", &Options::ratio, 0, 1,
                 "above 0: r is this share of the smaller side of a gradient; who gives a rank alone means no share");
}

CompressionStart compression_start(const TrainConfig& config, std::int64_t asked, const LrSchedule& schedule);

}  // namespace ab
