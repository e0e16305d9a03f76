#pragma once
// SPDX-License-Identifier: MIT
//
// The settings of the late cut as the program has them: those of ablowrank/cut_schedule.h, and which methods keep ranks
// together before and after the cut.

#include <string>

#include "ablowrank/cut_schedule.h"
#include "apps/settings/train_config.h"
#include "engine/optim/schedule.h"

namespace ab {

struct Method;

struct LateCutSettings : LateCutOptions {
  std::string full_rank_method = "powersgd";  ///< until the first cut
  std::string low_rank_method = "powersgd";   ///< of factors, after it
};

inline LateCutSettings& late_cut_settings(TrainConfig& config) { return config.of<LateCutSettings>(); }
inline const LateCutSettings& late_cut_settings(const TrainConfig& config) { return config.of<LateCutSettings>(); }

/// What LateCutStrategy takes: the settings of the method, and those of the run that concern it.
LateCutOptions late_cut_options(const TrainConfig& config);

/// The methods that keep ranks together until the first cut, and after it. Throw Error(config) where they cannot.
const Method& full_rank_method(const TrainConfig& config);
const Method& low_rank_method(const TrainConfig& config);

/// When a run cuts. Throws Error(config) where it is too short for that.
CutSchedule cut_schedule(const TrainConfig& config, const LrSchedule& schedule);

}  // namespace ab
