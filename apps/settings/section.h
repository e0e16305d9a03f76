#pragma once
// SPDX-License-Identifier: MIT
//
// Declares settings under one heading: members of TrainConfig, or of the options of a method (MethodOptions).
//
//   auto s = method_section<TopkOptions>(settings, "topk", "Top-k gradients (method topk)");
//   s.number("share", &TopkOptions::share, 0, 1, "how much of a gradient is sent").above_low = true;
//   s.choice("leader", &TopkOptions::leader, {{"turn", Leader::turn}, {"largest", Leader::largest}}, "who selects");

#include <type_traits>
#include <utility>

#include "apps/settings/setting.h"
#include "engine/core/check.h"

namespace ab {

/// "For ever" for a number of steps, and exact in a double.
inline constexpr double kMany = 1e15;

/// The values of a choice by their words.
template <class T> using Words = std::vector<std::pair<const char*, T>>;

template <class Options> class Section {
 public:
  /// `access`: from a TrainConfig, const or not, to the options in it. `prefix`: of keys, "ab." or empty.
  template <class Access>
  Section(std::vector<Setting>& settings, std::string title, std::string prefix, Access access)
      : settings_(settings), title_(std::move(title)), prefix_(std::move(prefix)), read_(access), write_(access) {}

  /// A switch, a text or a list of names.
  template <class T, class Owner> Setting& value(const char* key, T Owner::*member, const char* help) const {
    return add<T, T>(
        key, help, member, [](const T& held) { return held; }, [](const T& given) { return given; });
  }

  template <class T, class Owner>
  Setting& number(const char* key, T Owner::*member, double low, double high, const char* help) const {
    using Given = std::conditional_t<std::is_floating_point_v<T>, double, std::int64_t>;
    Setting& setting = add<Given, T>(
        key, help, member, [](const T& held) { return static_cast<Given>(held); },
        [](const Given& given) { return static_cast<T>(given); });
    setting.low = low;
    setting.high = high;
    return setting;
  }

  /// A list of numbers, each within the bounds.
  template <class Owner>
  Setting& numbers(const char* key, std::vector<double> Owner::*member, double low, double high,
                   const char* help) const {
    Setting& setting = value(key, member, help);
    setting.low = low;
    setting.high = high;
    return setting;
  }

  /// One of a few names.
  template <class Owner>
  Setting& name(const char* key, std::string Owner::*member, std::vector<std::string> names, const char* help) const {
    Setting& setting = value(key, member, help);
    setting.words = std::move(names);
    return setting;
  }

  /// One of a few values, each with its word.
  template <class T, class Owner>
  Setting& choice(const char* key, T Owner::*member, const Words<std::type_identity_t<T>>& words,
                  const char* help) const {
    const auto word_of = [words](const T& held) -> std::string {
      for (const auto& [word, value] : words)
        if (value == held) return word;
      throw Bug("bug in abtrain: a value of a setting has no word");
    };
    const auto meaning_of = [words](const std::string& given) {
      for (const auto& [word, value] : words)
        if (given == word) return value;
      throw Bug(fmt::format("bug in abtrain: the word '{}' has no meaning", given));
    };
    Setting& setting = add<std::string, T>(key, help, member, word_of, meaning_of);
    for (const auto& [word, value] : words) setting.words.push_back(word);
    return setting;
  }

 private:
  /// Given: the type of Value outside; T: that of the member.
  template <class Given, class T, class Owner, class ToGiven, class ToHeld>
  Setting& add(const char* key, const char* help, T Owner::*member, ToGiven to_given, ToHeld to_held) const {
    Setting& setting = settings_.emplace_back();
    setting.key = prefix_ + key;
    setting.help = help;
    setting.section = title_;
    setting.type = static_cast<SettingType>(Value(Given{}).index());
    setting.get = [read = read_, member, to_given](const TrainConfig& config) -> Value {
      return to_given(read(config).*member);
    };
    setting.set = [write = write_, member, to_held](TrainConfig& config, const Value& value) {
      write(config).*member = to_held(std::get<Given>(value));
    };
    return setting;
  }

  std::vector<Setting>& settings_;
  std::string title_, prefix_;
  std::function<const Options&(const TrainConfig&)> read_;
  std::function<Options&(TrainConfig&)> write_;
};

/// The settings of a method, whose options are of a type of their own.
template <class Options>
Section<Options> method_section(std::vector<Setting>& settings, const char* method, const char* title) {
  return Section<Options>(
      settings, title, fmt::format("{}.", method), [](auto& config) -> auto& { return config.template of<Options>(); });
}

}  // namespace ab
