#pragma once
// SPDX-License-Identifier: MIT
//
// The settings of ACP-SGD as the program has them, which AB-training may begin with.

#include <string>

#include "apps/settings/train_config.h"
#include "engine/sync/acpsgd.h"

namespace ab {

struct AcpSgdSettings : AcpSgdOptions {
  std::string preset = "default";

  bool operator==(const AcpSgdSettings&) const = default;
};

inline AcpSgdSettings& acpsgd_settings(TrainConfig& config) { return config.method_options.of<AcpSgdSettings>(); }

}  // namespace ab
