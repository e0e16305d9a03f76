// SPDX-License-Identifier: MIT
//
// Settings as text: the saved configuration, how two of them differ, and --help.
#include <set>

#include "apps/settings/config.h"
#include "apps/settings/setting.h"
#include "engine/core/check.h"

namespace ab {
namespace {

/// A value as it stands in a sentence.
std::string shown(const Setting& setting, const TrainConfig& config) {
  const std::string text = toml_text(setting, config);
  const bool enclosed = text.starts_with('"') || text.starts_with('[');
  return enclosed ? text.substr(1, text.size() - 2) : text;
}

/// "paper false" where a published preset of the method has another value than ours.
std::string published(const Setting& setting) {
  for (const MethodSettings& method : method_settings()) {
    if (method.presets.empty() || setting.table() != method.name) continue;
    TrainConfig ours, theirs;
    choose_method(ours, method.name);
    const Preset& preset = method.presets.back();
    choose_method(theirs, method.name, preset.name);
    const std::string value = shown(setting, theirs);
    if (value != shown(setting, ours)) return fmt::format("{} {}", preset.name, value);
  }
  return "";
}

}  // namespace

std::vector<std::string> differing_settings(const TrainConfig& before, const TrainConfig& now) {
  std::vector<std::string> different;
  for (const Setting& setting : train_settings()) {
    if (setting.flag_only || setting.may_change || !concerns(setting, now)) continue;
    const std::string was = toml_text(setting, before), is = toml_text(setting, now);
    if (was != is) different.push_back(fmt::format("{} {} (it was {})", setting.flag(), is, was));
  }
  return different;
}

void check_resumable(const TrainConfig& saved, const TrainConfig& now) {
  const std::vector<std::string> different = differing_settings(saved, now);
  AB_CHECK(different.empty(),
           "a run goes on with the settings it began with, but now has {}; start a new run with --out",
           fmt::join(different, ", "));
}

std::string to_toml(const TrainConfig& config) {
  std::string text = fmt::format("{} Run it again: abtrain train --config FILE --out FOLDER\n", kSavedConfigBegins);
  const TrainConfig defaults;
  std::set<std::string> changed;  // tables of methods with a value that is not the default
  for (const Setting& setting : train_settings())
    if (toml_text(setting, config) != toml_text(setting, defaults)) changed.insert(setting.table());
  std::string section;
  for (const Setting& setting : train_settings()) {
    const std::string table = setting.table();
    if (setting.flag_only || (!concerns(setting, config) && !changed.contains(table))) continue;
    if (setting.section != section) {
      section = setting.section;
      text += fmt::format("\n# {}\n", section);
      if (!table.empty()) text += fmt::format("[{}]\n", table);
    }
    const std::string value = toml_text(setting, config);
    if (setting.unset_at_zero && value == "0") continue;
    const std::string key = table.empty() ? setting.key : setting.key.substr(table.size() + 1);
    text += fmt::format("{} = {}\n", key, value);
  }
  return text;
}

std::vector<FlagHelp> train_flag_help() {
  const TrainConfig ours;
  std::vector<FlagHelp> lines;
  for (const Setting& setting : train_settings()) {
    FlagHelp line{setting.key, setting.flag(), setting.help, setting.section, setting.kind()};
    std::vector<std::string> notes;
    if (!setting.range().empty()) notes.push_back(setting.range());
    if (const std::string value = shown(setting, ours); !value.empty() && !setting.unset_at_zero)
      notes.push_back("default " + value);
    if (const std::string other = published(setting); !other.empty()) notes.push_back(other);
    if (!notes.empty()) line.text += fmt::format(" ({})", fmt::join(notes, "; "));
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace ab
