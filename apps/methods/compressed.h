#pragma once
// SPDX-License-Identifier: MIT
//
// What the records of methods share whose gradients are compressed after dense steps (engine/sync/compressed_gradients.h).

#include <functional>

#include "apps/methods/method.h"
#include "engine/sync/compressed_gradients.h"

namespace ab {

constexpr double kMostSteps = 1e15;  // "for ever", and exact in a double

/// The setting warmup_steps of such a method.
template <class Options> void declare_warmup(const Section<Options>& section) {
  section.number("warmup_steps", &Options::warmup_steps, -1, kMostSteps,
                 "steps at the start that exchange whole gradients; -1: a tenth of the run");
}

/// The setting preset of such a method, by name what it starts from; the first is "default", our own choice.
template <class Options>
void declare_preset(const Section<Options>& section, std::vector<std::pair<const char*, Options>> presets,
                    const char* help) {
  std::vector<std::string> names;
  for (const auto& [name, options] : presets) names.push_back(name);
  Setting& preset = section.name("preset", &Options::preset, names, help);
  preset.set = [presets](TrainConfig& config, const Value& name) {
    for (const auto& [known, options] : presets) {
      if (std::get<std::string>(name) != known) continue;
      config.method_options.template of<Options>() = options;
      config.method_options.template of<Options>().preset = known;
    }
  };
  preset.brings_defaults = true;
  preset.shown_word = names.back();
}

CompressionStart compression_start(const TrainConfig& config, std::int64_t warmup_steps, const LrSchedule& schedule);

/// What compressed steps exchange, and what the method holds for them.
struct CompressedSteps {
  /// Payloads of the buckets that leave during backward, by kind of step; compressed steps take turns.
  std::vector<std::vector<std::int64_t>> buckets{};
  /// Counts the other collectives of `times` steps.
  std::function<void(TrafficCounter& counter, std::int64_t times)> count{};
  std::int64_t work_bytes = 0;  ///< flat copies beside buckets
  std::int64_t kept_bytes = 0;  ///< residuals, factors
};
MethodPlan plan_compressed(const ModelSizes& sizes, const PlannedRun& run, std::int64_t warmup_steps,
                           const CompressedSteps& compressed);

}  // namespace ab
