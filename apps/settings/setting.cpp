// SPDX-License-Identifier: MIT
#include "apps/settings/setting.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

#include "engine/core/check.h"
#include "engine/core/path.h"

namespace ab {
namespace {

/// Adds the ".0" that tells a TOML reader's eye a real number from an integer.
std::string real_text(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

/// A bound of a range, short where it only says "very large".
std::string limit_text(double value) {
  if (value < 1e6) return fmt::format("{}", value);
  std::string text = fmt::format("{:.0e}", value);
  text.erase(text.find('+'), text[text.find('+') + 1] == '0' ? 2 : 1);
  return text;
}

std::string toml_string(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) quoted += fmt::format("\\u{:04x}", static_cast<int>(c));
    else quoted += c;
  }
  return quoted + '"';
}

std::string text_of(const Value& value, std::string (*of_text)(const std::string&), std::string (*of_real)(double)) {
  const auto of_list = [](const auto& list, auto of_one) {
    std::vector<std::string> texts;
    std::ranges::transform(list, std::back_inserter(texts), of_one);
    return fmt::format("[{}]", fmt::join(texts, ", "));
  };
  return std::visit(
      [&]<class V>(const V& v) -> std::string {
        if constexpr (std::is_same_v<V, std::vector<std::string>>) return of_list(v, of_text);
        else if constexpr (std::is_same_v<V, std::vector<double>>) return of_list(v, of_real);
        else if constexpr (std::is_same_v<V, std::string>) return of_text(v);
        else if constexpr (std::is_same_v<V, double>) return of_real(v);
        else return fmt::format("{}", v);
      },
      value);
}

/// As it stands in a sentence.
std::string shown(const Value& value) {
  return text_of(
      value, [](const std::string& text) { return "'" + text + "'"; },
      [](double real) { return fmt::format("{}", real); });
}

[[noreturn]] void reject(const Setting& setting, const Value& value, const std::string& where) {
  const double* real = std::get_if<double>(&value);
  const std::string given = real && setting.type == SettingType::integer ? real_text(*real) : shown(value);
  throw Error(ErrorKind::config, fmt::format("{} cannot be {}; allowed is {}", where, given, setting.allowed()));
}

bool in_range(const Setting& setting, double number) {
  return std::isfinite(number) && number <= setting.high &&
         (setting.above_low ? number > setting.low : number >= setting.low);
}

bool is_a_word(const Setting& setting, const std::string& text) {
  return setting.words.empty() || std::find(setting.words.begin(), setting.words.end(), text) != setting.words.end();
}

std::vector<std::string> split_at_commas(const std::string& text) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size() && !text.empty();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    begin = std::min(text.find_first_not_of(' ', begin), end);
    if (end > begin) parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

/// The number in `text`, all of it.
template <class Number> Value number_from(const Setting& setting, const std::string& text, const std::string& where) {
  Number number{};
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (problem != std::errc() || end != text.data() + text.size()) reject(setting, text, where);
  return number;
}

}  // namespace

std::string Setting::flag() const {
  std::string name = "--" + key;
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

std::string Setting::table() const {
  const std::size_t dot = key.find('.');
  return dot == std::string::npos ? "" : key.substr(0, dot);
}

std::string Setting::kind() const {
  static constexpr const char* kinds[] = {"", "INT", "NUM", "TEXT", "LIST", "NUMS"};
  return words.empty() ? kinds[static_cast<std::size_t>(type)] : "WORD";
}

std::string Setting::range() const {
  if (!words.empty()) return fmt::format("{} or {}", fmt::join(words.begin(), words.end() - 1, ", "), words.back());
  if (type != SettingType::integer && type != SettingType::real && type != SettingType::numbers) return "";
  const std::string bounds = above_low ? fmt::format("above {}, up to {}", limit_text(low), limit_text(high))
                                       : fmt::format("{} to {}", limit_text(low), limit_text(high));
  return at_auto ? fmt::format("{} or {}", bounds, kAuto) : bounds;
}

std::string Setting::allowed() const {
  static constexpr const char* kinds[] = {"true or false", "an integer, ",    "a number, ",
                                          "a text",        "a list of names", "a list of numbers, each "};
  return (words.empty() ? kinds[static_cast<std::size_t>(type)] : "") + range();
}

Value value_from_text(const Setting& setting, const std::string& text, const std::string& where) {
  if (setting.at_auto && text == kAuto) return text;
  switch (setting.type) {
    case SettingType::on_off:
      if (text == "true" || text == "1" || text == "on" || text == "yes") return true;
      if (text == "false" || text == "0" || text == "off" || text == "no") return false;
      reject(setting, text, where);
    case SettingType::integer: return number_from<std::int64_t>(setting, text, where);
    case SettingType::real: return number_from<double>(setting, text, where);
    case SettingType::list: return split_at_commas(text);
    case SettingType::numbers: {
      std::vector<double> numbers;
      for (const std::string& part : split_at_commas(text))
        numbers.push_back(std::get<double>(number_from<double>(setting, part, where)));
      return numbers;
    }
    case SettingType::text: break;
  }
  return text;
}

void assign(const Setting& setting, TrainConfig& config, const Value& value, const std::string& where) {
  if (setting.at_auto && value == Value(std::string(kAuto))) return setting.set(config, *setting.at_auto);
  Value stored = value;
  if (const auto* integer = std::get_if<std::int64_t>(&value); integer && setting.type == SettingType::real)
    stored = static_cast<double>(*integer);
  if (const auto* list = std::get_if<std::vector<std::string>>(&value);
      list && list->empty() && setting.type == SettingType::numbers)
    stored = std::vector<double>{};  // TOML's empty list has no type
  const bool allowed = [&] {
    if (stored.index() != static_cast<std::size_t>(setting.type)) return false;
    if (const auto* i = std::get_if<std::int64_t>(&stored)) return in_range(setting, static_cast<double>(*i));
    if (const auto* real = std::get_if<double>(&stored)) return in_range(setting, *real);
    if (const auto* text = std::get_if<std::string>(&stored)) return is_a_word(setting, *text);
    if (const auto* numbers = std::get_if<std::vector<double>>(&stored))
      return std::all_of(numbers->begin(), numbers->end(), [&](double n) { return in_range(setting, n); });
    return true;
  }();
  if (!allowed) reject(setting, value, where);
  if (const auto* text = std::get_if<std::string>(&stored))
    AB_CHECK(is_utf8(*text), "{} holds bytes that are not UTF-8, which config.toml cannot keep; give another name",
             where);
  if (setting.is_path) stored = expand_home(std::get<std::string>(stored));
  setting.set(config, stored);
}

std::string toml_text(const Setting& setting, const TrainConfig& config) {
  if (setting.at_auto && setting.get(config) == Value(*setting.at_auto)) return toml_string(kAuto);
  return text_of(setting.get(config), toml_string, real_text);
}

const Setting* find_setting(const std::string& key) {
  for (const Setting& setting : train_settings())
    if (setting.key == key) return &setting;
  return nullptr;
}

std::vector<const Setting*> bucket_settings(const TrainConfig& config) {
  std::vector<const Setting*> settings{find_setting("bucket_mb")};
  if (const Setting* own = find_setting(config.method + ".bucket_mb")) settings.push_back(own);
  return settings;
}

std::string nearest_name(const std::string& name, const std::vector<std::string>& known) {
  const auto distance = [](const std::string& a, const std::string& b) {  // Levenshtein's, row by row
    std::vector<std::size_t> row(b.size() + 1);
    std::iota(row.begin(), row.end(), std::size_t{0});
    for (std::size_t i = 1; i <= a.size(); ++i) {
      std::size_t diagonal = row[0];
      row[0] = i;
      for (std::size_t j = 1; j <= b.size(); ++j) {
        const std::size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
        diagonal = row[j];
        row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
      }
    }
    return row.back();
  };
  if (name.size() > 100) return "";
  // A setting of one method may be meant for another, which calls it alike.
  const std::size_t dot = std::min(name.find('.'), name.size());
  const auto is_of_one = [&](const std::string& other) { return other.starts_with(name.substr(0, dot) + "."); };
  for (const std::string& candidate : known)
    if (dot < name.size() && candidate.ends_with(name.substr(dot)) && std::ranges::any_of(known, is_of_one))
      return candidate;
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(2, name.size() / 3) + 1;
  for (const std::string& candidate : known)
    if (const std::size_t d = distance(name, candidate); d < best_distance) best = candidate, best_distance = d;
  return best;
}

const Method& find_method(const std::string& name) {
  std::vector<std::string> names;
  for (const Method& method : methods()) {
    if (method.name == name) return method;
    names.push_back(method.name);
  }
  throw Error(ErrorKind::config, fmt::format("there is no method '{}'; choose {}", name, fmt::join(names, ", ")));
}

void choose_method(TrainConfig& config, const std::string& name, const std::string& preset) {
  const Method& method = find_method(name);
  config.method = name, config.preset = preset;
  if (method.bring_defaults) method.bring_defaults(config);
  if (preset == kOurPreset) return;
  std::vector<std::string> known{kOurPreset};
  for (const Preset& published : method.presets) {
    if (preset == published.name) return published.start(config);
    known.push_back(published.name);
  }
  throw Error(ErrorKind::config, fmt::format("--preset cannot be '{}'; allowed with method {} is {}", preset, name,
                                             fmt::join(known, " or ")));
}

bool Setting::counts_for(const std::string& method) const {
  return !beside || beside->key != "method" || std::ranges::find(beside->words, method) != beside->words.end();
}

bool concerns(const Setting& setting, const TrainConfig& config) {
  const Method& method = find_method(config.method);
  const std::vector<std::string> used = method.uses ? method.uses(config) : std::vector<std::string>{};
  const std::string table = setting.table();
  return table.empty() || table == method.name || std::find(used.begin(), used.end(), table) != used.end();
}

}  // namespace ab
