#pragma once
// SPDX-License-Identifier: MIT
//
// The settings of the late cut as the program has them: those of ablowrank/late_cut_options.h, and which methods keep ranks
// together before and after the cut.

#include <string>

#include "ablowrank/late_cut_options.h"
#include "apps/settings/train_config.h"
#include "engine/plan/method_plan.h"

namespace ab {

struct Method;

struct LateCutSettings : LateCutOptions {
  LateCutSettings() { rank_multiple = 0; }  // what suits the device: rank_multiple()

  std::string preset = "default";
  std::string full_rank_method = "powersgd";  ///< until the first cut
  std::string low_rank_method = "powersgd";   ///< of factors, after it

  bool operator==(const LateCutSettings&) const = default;
};

inline LateCutSettings& late_cut_settings(TrainConfig& config) { return config.method_options.of<LateCutSettings>(); }
inline const LateCutSettings& late_cut_settings(const TrainConfig& config) {
  return config.method_options.of<LateCutSettings>();
}

/// What LateCutStrategy and plan_late_cut() take: the settings of the method, and those of the run that concern it.
LateCutOptions late_cut_options(const TrainConfig& config);

/// The methods that keep ranks together until the first cut, and after it. Throw Error(config) where they cannot.
const Method& full_rank_method(const TrainConfig& config);
const Method& low_rank_method(const TrainConfig& config);

/// The plan of a run whose settings have been checked.
MethodPlan plan_late_cut_run(const TrainConfig& config, Layer& model, const PlannedRun& run);

}  // namespace ab
