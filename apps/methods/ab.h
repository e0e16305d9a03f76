#pragma once
// SPDX-License-Identifier: MIT
//
// The settings of AB-training as the program has them: those of ablowrank/groups/options.h, and the preset that they
// started from.

#include <string>

#include "ablowrank/groups/options.h"
#include "apps/settings/train_config.h"

namespace ab {

struct AbSettings : AbOptions {
  AbSettings() { rank_policy.multiple = 0; }  // what suits the device: rank_multiple()

  std::string preset = "default";

  bool operator==(const AbSettings&) const = default;
};

inline AbSettings& ab_settings(TrainConfig& config) { return config.method_options.of<AbSettings>(); }
inline const AbSettings& ab_settings(const TrainConfig& config) { return config.method_options.of<AbSettings>(); }

/// What AbStrategy takes: the settings of the method, and those of the run that concern it.
AbOptions ab_options(const TrainConfig& config);

}  // namespace ab
