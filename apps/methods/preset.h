#pragma once
// SPDX-License-Identifier: MIT
//
// The setting `preset` of methods with published settings: where the others start from.

#include <string>
#include <utility>
#include <vector>

#include "apps/settings/section.h"

namespace ab {

/// `presets`: settings by their names, our own first, as "default"; --help shows those of the last beside ours.
/// Options has a member `preset`.
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

}  // namespace ab
