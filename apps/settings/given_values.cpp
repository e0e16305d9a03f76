// SPDX-License-Identifier: MIT
#include "apps/settings/given_values.h"

#include <toml++/toml.h>

#include <algorithm>
#include <set>

#include "apps/settings/earlier_names.h"
#include "engine/core/check.h"

namespace ab {
namespace {

/// Whether some settings are in a TOML table of that name.
bool has_table(const std::string& name) {
  return std::any_of(train_settings().begin(), train_settings().end(),
                     [&](const Setting& setting) { return setting.table() == name; });
}

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

/// A TOML file, and how sentences about it go on.
struct File {
  std::string name;
  bool is_saved = false;  ///< by a run
};

[[noreturn]] void refuse_unknown(const std::string& where, const std::string& key, const std::string& value,
                                 const File& file) {
  std::vector<std::string> known;
  for (const Setting& setting : train_settings())
    if (!setting.flag_only) known.push_back(setting.key);
  std::string sentence = earlier_name(where, key, value);
  if (sentence.empty()) {
    const std::string nearest = nearest_name(key, known);
    sentence = fmt::format("{} is not a setting", where);
    if (!nearest.empty() && !file.is_saved) sentence += fmt::format("; did you mean {}?", nearest);
  }
  if (file.is_saved)
    sentence +=
        fmt::format("; the run was saved by another version of abtrain{}; begin a new one with settings of today",
                    key.starts_with("ab.") ? ", whose method ab trained late cuts (--method late-cut) too" : "");
  throw Error(ErrorKind::config, sentence);
}

void collect(const toml::table& table, const std::string& prefix, const File& file, std::vector<GivenValue>& values) {
  for (const auto& [toml_key, node] : table) {
    const std::string key = prefix + std::string(toml_key.str());
    const std::string where = fmt::format("{}:{}: {}", file.name, toml_key.source().begin.line, key);
    const toml::table* inner = node.as_table();
    if (inner && prefix.empty() && has_table(key)) {
      collect(*inner, key + ".", file, values);
      continue;
    }
    const Setting* setting = find_setting(key);
    const std::string text = node.value_or(std::string());
    if (!setting || !earlier_name(where, key, text).empty()) refuse_unknown(where, key, text, file);
    AB_CHECK(!setting->flag_only, "{} is about one start of a run: give it as {}, not in a file", where,
             setting->flag());
    values.push_back({setting, value_of(node, where), where});
  }
}

/// Adds to a saved configuration what it leaves unsaid: tables in which all is as by default. A method that flags put in
/// place of its own brings the tables that it lacks, but does not change settings of all runs, as what gradients travel in.
void add_what_was_not_saved(const std::string& name, const std::vector<GivenValue>& flags,
                            std::vector<GivenValue>& values) {
  const auto differs = [&](const GivenValue* flag) {
    const GivenValue* saved = flag ? find_value(values, flag->setting->key) : nullptr;
    return flag && (!saved || saved->value != flag->value);
  };
  const GivenValue* preset = find_value(flags, "preset");
  const bool begins_anew = differs(find_value(flags, "method"));
  AB_CHECK(begins_anew || !differs(preset),
           "{} would change nothing: {} is of a run and gives every setting of its method already; leave it out",
           preset->where, name);
  std::set<std::string> tables, given;
  for (const GivenValue& value : values) tables.insert(value.setting->table()), given.insert(value.setting->key);
  // Settings that methods share are of the method that was saved; a preset is whole.
  if (begins_anew) {
    const std::string& method = std::get<std::string>(find_value(flags, "method")->value);
    std::erase_if(values, [&](const GivenValue& value) {
      const auto& beside = value.setting->beside;
      return (beside && beside->key == "method") || (preset && value.setting->table() == method);
    });
  }
  const TrainConfig defaults;
  for (const Setting& setting : train_settings()) {
    if (given.contains(setting.key) || setting.flag_only || setting.unset_at_zero) continue;
    const std::string table = setting.table();
    AB_CHECK(!table.empty() && !tables.contains(table),
             "{} was saved by another version of abtrain, which had no {}; begin a new run with settings of today",
             name, setting.flag());
    if (!begins_anew) values.push_back({&setting, setting.get(defaults), name});
  }
}

}  // namespace

std::vector<GivenValue> read_flags(const std::vector<FlagValue>& flags) {
  std::vector<GivenValue> values;
  for (const auto& [key, text] : flags) {
    const Setting* setting = find_setting(key);
    AB_CHECK(setting, "--{} is not a flag", key);
    const std::string earlier = earlier_name(setting->flag(), key, text);
    if (!earlier.empty()) throw Error(ErrorKind::config, earlier);
    AB_CHECK(!text.empty() || !setting->never_empty, "{} is given without a value; is a variable empty?",
             setting->flag());
    values.push_back({setting, value_from_text(*setting, text, setting->flag()), setting->flag()});
  }
  return values;
}

std::vector<GivenValue> parse_config(const std::string& text, const std::string& file,
                                     const std::vector<GivenValue>& flags) {
  const bool is_saved = text.starts_with(kSavedConfigBegins);
  std::vector<GivenValue> values;
  try {
    collect(toml::parse(text, file), "", {file, is_saved}, values);
  } catch (const toml::parse_error& problem) {
    throw Error(ErrorKind::config, fmt::format("{}:{}: {}", file, problem.source().begin.line, problem.description()));
  }
  if (is_saved) add_what_was_not_saved(file, flags, values);
  return values;
}

const GivenValue* find_value(const std::vector<GivenValue>& values, const std::string& key) {
  const auto at =
      std::find_if(values.begin(), values.end(), [&](const GivenValue& v) { return v.setting->key == key; });
  return at == values.end() ? nullptr : &*at;
}

}  // namespace ab
