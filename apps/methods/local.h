#pragma once
// SPDX-License-Identifier: MIT
//
// The settings of local training as the program has them, by which AB-training may keep ranks together.

#include <string>

#include "apps/settings/train_config.h"
#include "engine/sync/local.h"

namespace ab {

struct LocalSettings : LocalOptions {
  std::string preset = "default";

  bool operator==(const LocalSettings&) const = default;
};

inline LocalSettings& local_settings(TrainConfig& config) { return config.method_options.of<LocalSettings>(); }
inline const LocalSettings& local_settings(const TrainConfig& config) {
  return config.method_options.of<LocalSettings>();
}

}  // namespace ab
