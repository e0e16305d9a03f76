#pragma once
// SPDX-License-Identifier: MIT
//
// The settings of PowerSGD as the program has them, which AB-training may begin with.

#include <string>

#include "apps/settings/train_config.h"
#include "engine/sync/powersgd.h"

namespace ab {

struct PowerSgdSettings : PowerSgdOptions {
  std::string preset = "default";

  bool operator==(const PowerSgdSettings&) const = default;
};

inline PowerSgdSettings& powersgd_settings(TrainConfig& config) { return config.method_options.of<PowerSgdSettings>(); }
inline const PowerSgdSettings& powersgd_settings(const TrainConfig& config) {
  return config.method_options.of<PowerSgdSettings>();
}

}  // namespace ab
