// SPDX-License-Identifier: MIT
#include "apps/config/config.h"

#include <toml++/toml.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "apps/config/run_device.h"
#include "apps/config/run_wiring.h"
#include "apps/config/train_settings.h"
#include "apps/methods/method.h"
#include "apps/settings/nearest_name.h"
#include "data/datasets.h"
#include "engine/core/atomic_file.h"
#include "engine/core/path.h"
#include "engine/io/checkpoint.h"

namespace ab {
namespace {

constexpr std::uint64_t kMaxConfigBytes = 1 << 20;

const Setting* find_setting(const std::string& key) {
  for (const Setting& setting : train_settings())
    if (setting.key == key) return &setting;
  return nullptr;
}

/// Whether some settings are in a TOML table of that name.
bool has_table(const std::string& name) {
  return std::any_of(train_settings().begin(), train_settings().end(),
                     [&](const Setting& setting) { return setting.table() == name; });
}

std::string did_you_mean(const std::string& name, const std::vector<std::string>& known) {
  const std::string nearest = nearest_name(name, known);
  return nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest);
}

/// A value that somebody gave, and the words that begin a sentence about it.
struct GivenValue {
  const Setting* setting;
  Value value;
  std::string where;  // "--lr" or "run.toml:3: lr"
};

/// A TOML value as ours; dates and tables are nothing that a setting could hold.
Value value_of(const toml::node& node, const std::string& where) {
  if (const auto* v = node.as_boolean()) return v->get();
  if (const auto* v = node.as_integer()) return v->get();
  if (const auto* v = node.as_floating_point()) return v->get();
  if (const auto* v = node.as_string()) return v->get();
  const toml::array* array = node.as_array();
  AB_CHECK(array != nullptr, "{} is neither a number, a text, true or false, nor a list", where);
  std::vector<std::string> names;
  std::vector<double> numbers;
  for (const toml::node& element : *array) {
    if (element.is_string()) names.push_back(element.as_string()->get());
    else if (element.is_number()) numbers.push_back(*element.value<double>());
    AB_CHECK((element.is_string() || element.is_number()) && (names.empty() || numbers.empty()),
             "{} is a list of something else than either texts or numbers", where);
  }
  if (!numbers.empty()) return numbers;
  return names;
}

void collect(const toml::table& table, const std::string& prefix, const std::string& file,
             std::vector<GivenValue>& values) {
  for (const auto& [toml_key, node] : table) {
    const std::string key = prefix + std::string(toml_key.str());
    const std::string where = fmt::format("{}:{}: {}", file, toml_key.source().begin.line, key);
    const toml::table* inner = node.as_table();
    if (inner && prefix.empty() && has_table(key)) {
      collect(*inner, key + ".", file, values);
      continue;
    }
    const std::string moved = moved_to_late_cut(where, key, node.value_or(std::string()));
    if (!moved.empty()) throw Error(ErrorKind::config, moved);
    const Setting* setting = find_setting(key);
    AB_CHECK(!setting || !setting->flag_only, "{} is about one start of a run: give it as {}, not in a file", where,
             setting->flag());
    if (!setting) {
      std::vector<std::string> known;
      for (const Setting& s : train_settings())
        if (!s.flag_only) known.push_back(s.key);
      throw Error(ErrorKind::config, fmt::format("{} is not a setting{}", where, did_you_mean(key, known)));
    }
    values.push_back({setting, value_of(node, where), where});
  }
}

std::vector<GivenValue> read_flags(const std::vector<FlagValue>& flags) {
  std::vector<GivenValue> values;
  for (const auto& [key, text] : flags) {
    const Setting* setting = find_setting(key);
    AB_CHECK(setting, "--{} is not a flag", key);
    const std::string moved = moved_to_late_cut(setting->flag(), key, text);
    if (!moved.empty()) throw Error(ErrorKind::config, moved);
    AB_CHECK(!text.empty() || !setting->never_empty, "{} is given without a value; is a variable empty?",
             setting->flag());
    values.push_back({setting, value_from_text(*setting, text, setting->flag()), setting->flag()});
  }
  return values;
}

const GivenValue* find_value(const std::vector<GivenValue>& values, const std::string& key) {
  const auto at =
      std::find_if(values.begin(), values.end(), [&](const GivenValue& v) { return v.setting->key == key; });
  return at == values.end() ? nullptr : &*at;
}

/// Adds to a saved configuration what it leaves unsaid: tables in which all is as by default. Its method brings nothing to
/// it. One that flags put in its place brings the tables that it lacks, but neither
/// does that change settings of all runs, as what gradients travel in, nor a preset those of a table that it has.
void add_what_was_not_saved(const std::string& name, const std::vector<GivenValue>& flags,
                            std::vector<GivenValue>& values) {
  const TrainConfig defaults;
  std::set<std::string> tables, given;
  for (const GivenValue& value : values) tables.insert(value.setting->table()), given.insert(value.setting->key);
  bool begins_anew = false;
  for (const GivenValue& flag : flags) {
    const std::string table = flag.setting->table();
    const GivenValue* saved = find_value(values, flag.setting->key);
    std::optional<Value> was;
    if (saved) was = saved->value;
    if (!flag.setting->brings_defaults || was == flag.value) continue;
    AB_CHECK(table.empty() || !tables.contains(table),
             "{} would change nothing: {} is of a run and gives every setting of {} already; leave it out", flag.where,
             name, table);
    begins_anew = true;
  }
  for (const Setting& setting : train_settings()) {
    const std::string table = setting.table();
    if (table.empty() || given.contains(setting.key)) continue;
    AB_CHECK(!tables.contains(table) || setting.flag_only || setting.unset_at_zero,
             "{} was saved by another version of abtrain, which had no {}; start a new run", name, setting.flag());
    if (!tables.contains(table) && !begins_anew) values.push_back({&setting, setting.get(defaults), name});
  }
}

std::vector<GivenValue> parse_config(const std::string& text, const std::string& file,
                                     const std::vector<GivenValue>& flags) {
  std::vector<GivenValue> values;
  try {
    collect(toml::parse(text, file), "", file, values);
  } catch (const toml::parse_error& problem) {
    throw Error(ErrorKind::config, fmt::format("{}:{}: {}", file, problem.source().begin.line, problem.description()));
  }
  if (text.starts_with(kSavedConfigBegins)) add_what_was_not_saved(file, flags, values);
  return values;
}

/// Stores one layer of values, less those that bring defaults. Of two settings that exclude each other, giving one in
/// this layer takes back what a lower layer said about the other.
void apply(const std::vector<GivenValue>& values, TrainConfig& config) {
  const auto exclusive = [&](const char* key_a, auto& a, const char* key_b, auto& b) {
    const GivenValue* value_a = find_value(values, key_a);
    const GivenValue* value_b = find_value(values, key_b);
    if (value_a || value_b) a = 0, b = 0;
    for (const GivenValue* value : {value_a, value_b})
      if (value) assign(*value->setting, config, value->value, value->where);
    AB_CHECK(a == 0 || b == 0, "{} and {} exclude each other; give one of them", value_a ? value_a->where : key_a,
             value_b ? value_b->where : key_b);
  };
  for (const GivenValue& value : values)
    if (!value.setting->brings_defaults) assign(*value.setting, config, value.value, value.where);
  exclusive("epochs", config.epochs, "steps", config.steps);
  exclusive("warmup_epochs", config.warmup_epochs, "warmup_steps", config.warmup_steps);
}

/// Values that follow from others when nobody gave them.
void fill_in(TrainConfig& config) {
  if (config.epochs == 0 && config.steps == 0) config.epochs = 10;
  if (config.out.empty()) config.out = fmt::format("runs/{}_{}", config.model, config.method);
  config.data_dir = absolute_path(known_folder_of(find_dataset(config.dataset), config.data_dir));
  config.weights = absolute_path(config.weights);
  AB_CHECK(is_utf8(config.data_dir), "the folder of the data set holds bytes that are not UTF-8; give another name");
}

/// Whether the run uses the setting: one of all runs, of its method, or of those that this uses.
bool concerns(const Setting& setting, const TrainConfig& config) {
  const Method& method = find_method(config.method);
  const std::vector<std::string> used = method.uses ? method.uses(config) : std::vector<std::string>{};
  const std::string table = setting.table();
  return table.empty() || table == method.name || std::find(used.begin(), used.end(), table) != used.end();
}

/// Whether the other setting is as it must be.
bool counts(const Beside& beside, const TrainConfig& config) {
  const Value value = find_setting(beside.key)->get(config);
  if (beside.words.empty()) return value != Value(std::int64_t{0});
  return std::ranges::find(beside.words, std::get<std::string>(value)) != beside.words.end();
}

/// A flag that would change nothing is a mistake; a file may have tables of several methods.
void check_flags_count(const std::vector<GivenValue>& flags, const TrainConfig& config) {
  for (const GivenValue& flag : flags) {
    const Setting& setting = *flag.setting;
    AB_CHECK(concerns(setting, config), "{} is a setting of method {}, which a run by method {} does not use",
             flag.where, setting.table(), config.method);
    const auto& beside = setting.beside;
    const bool* is_on = std::get_if<bool>(&flag.value);
    AB_CHECK(!beside || (is_on && !*is_on) || counts(*beside, config), "{} counts with {} {} only, which is {} here",
             flag.where, find_setting(beside->key)->flag(),
             beside->words.empty() ? "above 0" : fmt::format("{}", fmt::join(beside->words, " or ")),
             toml_text(*find_setting(beside->key), config));
    if (!setting.brings_defaults) continue;
    const auto* given = std::get_if<std::string>(&flag.value);
    const std::string now = std::get<std::string>(setting.get(config));
    AB_CHECK(!given || *given == now, "{} {} does not go with the other flags, by which it is {}; leave one out",
             flag.where, *given, now);
  }
}

/// What no single value shows.
void check_together(const TrainConfig& config, ConfigUse use) {
  if (use == ConfigUse::train) folder_of(find_dataset(config.dataset), config.data_dir);
  AB_CHECK(config.min_lr <= config.lr, "--min-lr {} is above --lr {}", config.min_lr, config.lr);
  AB_CHECK(!config.autotune || !config.deterministic,
           "--autotune takes what is fastest at the time, which --deterministic must not; give one of them");
  check_device_word(config.device);
  if (use == ConfigUse::plan) planned_wiring(config);
  else run_wiring(config);
}

/// The folder of --resume FOLDER; empty for --resume auto and without the flag.
std::string folder_to_resume(const std::vector<FlagValue>& flags) {
  for (const auto& [key, text] : flags)
    if (key == "resume" && text != "auto") return expand_home(text);
  return "";
}

/// A run folder brings its own settings and is the place that the run goes on in.
TrainConfig resolve_resumed(const std::string& folder, std::vector<FlagValue> flags, const std::string& config_file) {
  AB_CHECK(config_file.empty(), "--resume {} takes the settings of that run; leave --config away", folder);
  const std::string saved = (std::filesystem::path(folder) / "config.toml").string();
  std::error_code ignored;
  AB_CHECK(std::filesystem::exists(saved, ignored), "--resume {}: there is no run, since there is no {}", folder,
           saved);
  for (const auto& [key, text] : flags)
    AB_CHECK(key != "out", "--resume {} goes on in that folder; leave --out away", folder);
  std::erase_if(flags, [](const FlagValue& flag) { return flag.first == "resume"; });
  TrainConfig config = resolve_train_config(flags, saved);
  config.resume = config.out = folder;
  return config;
}

/// A run that goes on has as many ranks as it had, also where processes become threads, unless a flag says otherwise.
void keep_ranks(const std::vector<FlagValue>& flags, TrainConfig& config) {
  const auto is_given = [](const FlagValue& flag) { return flag.first == "ranks"; };
  if (config.resume.empty() || std::ranges::any_of(flags, is_given)) return;
  const int ranks = ranks_of_newest_checkpoint((std::filesystem::path(config.out) / "checkpoints").string());
  if (ranks > 0) config.ranks = ranks;
}

}  // namespace

std::string moved_to_late_cut(const std::string& where, const std::string& key, const std::string& value) {
  static const std::map<std::string, std::string> keys{{"ab.train", "*"},
                                                       {"ab.directions", "*"},
                                                       {"ab.cut_at", "at"},
                                                       {"ab.cut_keep", "keep"},
                                                       {"ab.loss_share", "keep"},
                                                       {"ab.budget", "keep"},
                                                       {"ab.gather_steps", "gather-steps"},
                                                       {"ab.conv_factors", "conv-factors"},
                                                       {"ab.full_rank_method", "full-rank-method"},
                                                       {"ab.low_rank_method", "low-rank-method"}};
  static const std::map<std::pair<std::string, std::string>, std::string> words{
      {{"ab.preset", "nodes"}, "preset"},
      {{"ab.preset", "groups"}, "*"},
      {{"ab.rank_policy", "loss-share"}, "rank-policy"},
      {{"ab.rank_policy", "loss-budget"}, "rank-policy"}};
  const auto by_key = keys.find(key);
  const auto by_word = words.find({key, value});
  if (by_key == keys.end() && by_word == words.end()) return "";
  return fmt::format(
      "{}{}{}: --method ab is AB-training by groups alone now, which needs no such setting; the late cut is --method "
      "late-cut with --late-cut.{}, and a run that was saved before cannot go on",
      where, value.empty() ? "" : " ", value, by_key == keys.end() ? by_word->second : by_key->second);
}

TrainConfig resolve_train_config(const std::vector<FlagValue>& flags, const std::string& config_file, ConfigUse use) {
  TrainConfig config;
  if (const std::string folder = folder_to_resume(flags); !folder.empty()) {
    config = resolve_resumed(folder, flags, config_file);
  } else {
    const std::string text = config_file.empty() ? "" : read_file(config_file, ErrorKind::config, kMaxConfigBytes);
    config = resolve_config_text(flags, text, config_file, use);
  }
  keep_ranks(flags, config);
  return config;
}

TrainConfig resolve_config_text(const std::vector<FlagValue>& flags, const std::string& text, const std::string& name,
                                ConfigUse use) {
  const std::vector<GivenValue> from_flags = read_flags(flags);
  const std::vector<GivenValue> from_file = parse_config(text, name, from_flags);
  TrainConfig config;
  std::set<std::string> begun_by_flag;  // tables; what a file says later about where they start does not count
  for (const Setting& setting : train_settings()) {
    if (!setting.brings_defaults) continue;
    const GivenValue* given = find_value(from_flags, setting.key);
    if (given) begun_by_flag.insert(setting.table());
    else if (!begun_by_flag.contains(setting.table())) given = find_value(from_file, setting.key);
    if (given) assign(setting, config, given->value, given->where);
  }
  apply(from_file, config);
  apply(from_flags, config);
  check_flags_count(from_flags, config);
  fill_in(config);
  check_together(config, use);
  return config;
}

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
  const auto shown = [](const Setting& setting, const TrainConfig& config) {
    const std::string text = toml_text(setting, config);
    const bool enclosed = text.starts_with('"') || text.starts_with('[');
    return enclosed ? text.substr(1, text.size() - 2) : text;
  };
  const TrainConfig ours;
  std::vector<std::pair<std::string, TrainConfig>> others;  // whose defaults are worth a word beside ours
  for (const Setting& setting : train_settings())
    if (!setting.shown_word.empty())
      assign(setting, others.emplace_back(setting.shown_word, ours).second, setting.shown_word, setting.flag());
  std::vector<FlagHelp> lines;
  for (const Setting& setting : train_settings()) {
    FlagHelp line{setting.key, setting.flag(), setting.help, setting.section, setting.kind()};
    const std::string value = shown(setting, ours);
    std::vector<std::string> notes;
    if (!setting.range().empty()) notes.push_back(setting.range());
    if (!value.empty() && !setting.unset_at_zero) notes.push_back("default " + value);
    for (const auto& [name, config] : others)
      if (const std::string other = shown(setting, config); other != value && !setting.brings_defaults)
        notes.push_back(name + " " + other);
    if (!notes.empty()) line.text += fmt::format(" ({})", fmt::join(notes, "; "));
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace ab
