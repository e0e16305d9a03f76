#pragma once
// SPDX-License-Identifier: MIT
//
// The settings that somebody gave, as flags or in TOML.

#include <vector>

#include "apps/settings/config.h"
#include "apps/settings/setting.h"

namespace ab {

struct GivenValue {
  const Setting* setting;
  Value value;
  std::string where;  ///< begins a sentence about it: "--lr" or "run.toml:3: lr"
};

/// Those of flags. Throws Error(config).
std::vector<GivenValue> read_flags(const std::vector<FlagValue>& flags);
/// Those of TOML that messages call `file`; where it is a saved configuration, with the defaults that it leaves unsaid. Its
/// values do not depend on `flags`, but a method among those brings settings of its own. Throws Error(config).
std::vector<GivenValue> parse_config(const std::string& text, const std::string& file,
                                     const std::vector<GivenValue>& flags);
/// That of the setting with this key; null: it was not given.
const GivenValue* find_value(const std::vector<GivenValue>& values, const std::string& key);

}  // namespace ab
