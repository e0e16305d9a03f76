#pragma once
// SPDX-License-Identifier: MIT

#include <vector>

#include "apps/settings/setting.h"

namespace ab {

/// Every setting of a training run, declared once: those that all runs have, then those of each method. A setting that
/// is missing here exists neither as a flag nor in TOML, --help or the saved configuration.
const std::vector<Setting>& train_settings();

}  // namespace ab
