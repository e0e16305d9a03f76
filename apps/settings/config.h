#pragma once
// SPDX-License-Identifier: MIT
//
// Where the settings of a run come from: command-line flags win over the TOML file of --config, which wins over what a
// preset and the method bring, which wins over the defaults of TrainConfig. Each setting is declared once
// (train_settings.cpp, apps/methods); flags, TOML keys, --help and the saved config.toml follow from that.

#include <string>
#include <utility>
#include <vector>

#include "apps/settings/train_config.h"

namespace ab {

/// A flag as it was given: its TOML key ("batch_size", "ab.cycle_steps") and its text.
using FlagValue = std::pair<std::string, std::string>;

/// What a configuration is for: a plan reads no images, so it needs no folder of them.
enum class ConfigUse { train, plan };

/// Defaults, then the preset, then `config_file` (may be empty), then `flags`; all values checked.
/// Throws Error(config) with the place, the allowed values and, for an unknown key, the nearest known one.
TrainConfig resolve_train_config(const std::vector<FlagValue>& flags, const std::string& config_file,
                                 ConfigUse use = ConfigUse::train);

/// The same for the text of a configuration file that messages call `name`.
TrainConfig resolve_config_text(const std::vector<FlagValue>& flags, const std::string& text, const std::string& name,
                                ConfigUse use = ConfigUse::train);

/// The settings in which `now` differs from `before`, as "--lr 0.1 (it was 0.2)", save those that may change within a run:
/// where data and results are, device, transport, threads, timeouts, how often to log and save.
std::vector<std::string> differing_settings(const TrainConfig& before, const TrainConfig& now);

/// Throws Error(config) that lists them, for `now` that continues a run.
void check_resumable(const TrainConfig& saved, const TrainConfig& now);

/// How to_toml() begins, so that a saved configuration is told from one that somebody wrote.
inline constexpr const char* kSavedConfigBegins = "# A training run of abtrain.";

/// As TOML all settings that concern the run, and those of other methods that somebody changed; reading it back gives
/// the same.
std::string to_toml(const TrainConfig& config);

/// One line of --help.
struct FlagHelp {
  std::string key;      ///< "ab.cycle_steps"
  std::string flag;     ///< "--ab.cycle-steps"
  std::string text;     ///< what it does, allowed range, default
  std::string section;  ///< heading in --help
  std::string value;    ///< "INT", "NUM", "WORD", "TEXT", "LIST"; empty for a switch
};
/// `start`: whose values stand as defaults; null: those of the program and of its methods.
std::vector<FlagHelp> train_flag_help(const TrainConfig* start = nullptr);

}  // namespace ab
