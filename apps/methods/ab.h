#pragma once
// SPDX-License-Identifier: MIT

#include "ablowrank/groups/options.h"
#include "apps/settings/train_config.h"

namespace ab {

inline AbOptions& ab_settings(TrainConfig& config) { return config.of<AbOptions>(); }
inline const AbOptions& ab_settings(const TrainConfig& config) { return config.of<AbOptions>(); }

/// What AbStrategy takes: the settings of AB-training, and those of all runs that concern it.
AbOptions ab_options(const TrainConfig& config);

}  // namespace ab
