// SPDX-License-Identifier: MIT
//
// One value of a setting: from text, into TrainConfig, back to text.

#include <algorithm>
#include <charconv>
#include <cmath>
#include <type_traits>

#include "apps/config_table.h"
#include "engine/core/check.h"

namespace ab {
namespace {

template <class F> using TypeOf = std::remove_reference_t<typename F::result_type>;

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
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      quoted += fmt::format("\\u{:04x}", static_cast<int>(c));
    else
      quoted += c;
  }
  return quoted + '"';
}

std::string shown(const Value& value) {
  return std::visit(
      []<class V>(const V& v) -> std::string {
        if constexpr (std::is_same_v<V, std::vector<std::string>>)
          return fmt::format("[{}]", fmt::join(v, ", "));
        else if constexpr (std::is_same_v<V, std::string>)
          return fmt::format("'{}'", v);
        else
          return fmt::format("{}", v);
      },
      value);
}

[[noreturn]] void reject(const Setting& setting, const Value& value, const std::string& where) {
  throw Error(ErrorKind::config,
              fmt::format("{} cannot be {}; allowed is {}", where, shown(value), setting.allowed()));
}

bool in_range(const Setting& setting, double number) {
  return std::isfinite(number) && number <= setting.high &&
         (setting.above_low ? number > setting.low : number >= setting.low);
}

std::vector<std::string> split_at_commas(const std::string& text) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size() && !text.empty();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    if (end > begin) parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

}  // namespace

std::string Setting::flag() const {
  std::string name = "--" + key;
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

std::string Setting::kind() const {
  return std::visit(
      [this]<class F>(const F&) -> std::string {
        using V = TypeOf<F>;
        if constexpr (std::is_same_v<V, bool>)
          return "";
        else if constexpr (std::is_same_v<V, std::string>)
          return words.empty() ? "TEXT" : "WORD";
        else if constexpr (std::is_same_v<V, std::vector<std::string>>)
          return "LIST";
        else if constexpr (std::is_same_v<V, double>)
          return "NUM";
        else
          return "INT";
      },
      field);
}

std::string Setting::range() const {
  if (!words.empty())
    return fmt::format("{} or {}", fmt::join(words.begin(), words.end() - 1, ", "), words.back());
  const std::string type = kind();
  if (type != "INT" && type != "NUM") return "";
  return above_low ? fmt::format("above {}, up to {}", limit_text(low), limit_text(high))
                   : fmt::format("{} to {}", limit_text(low), limit_text(high));
}

std::string Setting::allowed() const {
  const std::string type = kind();
  if (type.empty()) return "true or false";
  if (type == "INT") return "an integer, " + range();
  if (type == "NUM") return "a number, " + range();
  if (type == "LIST") return "a list of names";
  return words.empty() ? "a text" : range();
}

Value value_from_text(const Setting& setting, const std::string& text, const std::string& where) {
  return std::visit(
      [&]<class F>(const F&) -> Value {
        using V = TypeOf<F>;
        if constexpr (std::is_same_v<V, std::string>) {
          return text;
        } else if constexpr (std::is_same_v<V, std::vector<std::string>>) {
          return split_at_commas(text);
        } else if constexpr (std::is_same_v<V, bool>) {
          if (text == "true" || text == "1" || text == "on" || text == "yes") return true;
          if (text == "false" || text == "0" || text == "off" || text == "no") return false;
          reject(setting, text, where);
        } else {
          std::conditional_t<std::is_same_v<V, double>, double, std::int64_t> number{};
          const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
          if (problem != std::errc() || end != text.data() + text.size()) reject(setting, text, where);
          return number;
        }
      },
      setting.field);
}

void assign(const Setting& setting, TrainConfig& config, const Value& value, const std::string& where) {
  std::visit(
      [&]<class F>(const F& field) {
        using V = TypeOf<F>;
        if constexpr (std::is_arithmetic_v<V> && !std::is_same_v<V, bool>) {
          const auto* integer = std::get_if<std::int64_t>(&value);
          const auto* real = std::get_if<double>(&value);
          if (!integer && !(real && std::is_same_v<V, double>)) reject(setting, value, where);
          if (!in_range(setting, integer ? static_cast<double>(*integer) : *real))
            reject(setting, value, where);
          field(config) = integer ? static_cast<V>(*integer) : static_cast<V>(*real);
        } else {
          const V* same = std::get_if<V>(&value);
          if (!same) reject(setting, value, where);
          if constexpr (std::is_same_v<V, std::string>) {
            const bool free_text = setting.words.empty();
            if (!free_text &&
                std::find(setting.words.begin(), setting.words.end(), *same) == setting.words.end())
              reject(setting, value, where);
          }
          field(config) = *same;
        }
      },
      setting.field);
}

std::string toml_text(const Setting& setting, const TrainConfig& config) {
  TrainConfig copy = config;
  return std::visit(
      [&]<class F>(const F& field) -> std::string {
        using V = TypeOf<F>;
        const V& value = field(copy);
        if constexpr (std::is_same_v<V, std::string>) {
          return toml_string(value);
        } else if constexpr (std::is_same_v<V, std::vector<std::string>>) {
          std::vector<std::string> quoted;
          std::transform(value.begin(), value.end(), std::back_inserter(quoted), toml_string);
          return fmt::format("[{}]", fmt::join(quoted, ", "));
        } else if constexpr (std::is_same_v<V, double>) {
          return real_text(value);
        } else {
          return fmt::format("{}", value);
        }
      },
      setting.field);
}

}  // namespace ab
