// SPDX-License-Identifier: MIT
//
// Settings as text: the saved configuration, how two of them differ, and --help.
#include <map>
#include <set>

#include "apps/settings/config.h"
#include "apps/settings/setting.h"
#include "engine/core/check.h"

namespace ab {
namespace {

/// A value as it stands in a sentence: 4, where TOML wants 4.0.
std::string shown(const Setting& setting, const TrainConfig& config) {
  std::string text = toml_text(setting, config);
  if (text.starts_with('"') || text.starts_with('[')) return text.substr(1, text.size() - 2);
  if (setting.type == SettingType::real && text.ends_with(".0")) text.resize(text.size() - 2);
  return text;
}

/// Where runs start from: a method, or one of its presets.
struct Start {
  std::string name;
  const Method* method;
  TrainConfig config;
};

/// First every method, then their presets.
std::vector<Start> all_starts() {
  std::vector<Start> starts;
  const auto add = [&](const std::string& name, const Method& method, const char* preset) {
    starts.push_back({name, &method, {}});
    choose_method(starts.back().config, method.name, preset);
  };
  for (const Method& method : methods()) add(method.name, method, kOurPreset);
  for (const Method& method : methods())
    for (const Preset& preset : method.presets) add(preset.name, method, preset.name);
  return starts;
}

/// "default 4", or nothing where nothing is set.
std::vector<std::string> default_in(const Setting& setting, const TrainConfig& start) {
  const std::string value = shown(setting, start);
  if (value.empty() || (setting.unset_at_zero && value == "0")) return {};
  return {"default " + value};
}

/// "default 4", then "late-cut 0.25", "torch-hook 1": other values that runs start from, by method or preset.
std::vector<std::string> defaults_of(const Setting& setting) {
  static const std::vector<Start> starts = all_starts();
  if (setting.unset_at_zero || setting.brings_defaults) return {};
  const std::string ours = shown(setting, {});
  std::vector<std::string> notes = default_in(setting, {});
  std::map<const Method*, std::string> of_method;
  for (const Start& start : starts) {
    const std::string value = shown(setting, start.config);
    const auto [at, is_method] = of_method.try_emplace(start.method, value);
    const bool differs = is_method ? value != ours : value != at->second;
    if (differs && !value.empty())
      notes.push_back(fmt::format(
          "{}{} {}", is_method || setting.table() == start.method->name ? "" : std::string(start.method->name) + " ",
          start.name, value));
  }
  return notes;
}

}  // namespace

std::vector<std::string> differing_settings(const TrainConfig& before, const TrainConfig& now) {
  std::vector<std::string> different;
  for (const Setting& setting : train_settings()) {
    if (setting.flag_only || !concerns(setting, now) || !setting.counts_for(now.method)) continue;
    const std::string was = toml_text(setting, before), is = toml_text(setting, now);
    const auto is_kept = [&](const TrainConfig& config) {
      return !setting.kept_word.empty() && setting.get(config) == Value(setting.kept_word);
    };
    if (setting.may_change && is_kept(before) == is_kept(now)) continue;
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

std::vector<FlagHelp> train_flag_help(const TrainConfig* start) {
  std::vector<FlagHelp> lines;
  for (const Setting& setting : train_settings()) {
    FlagHelp line{setting.key, setting.flag(), setting.help, setting.section, setting.kind()};
    std::vector<std::string> notes;
    if (!setting.range().empty()) notes.push_back(setting.range());
    for (const std::string& note : start ? default_in(setting, *start) : defaults_of(setting)) notes.push_back(note);
    if (!notes.empty()) line.text += fmt::format(" ({})", fmt::join(notes, "; "));
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace ab
