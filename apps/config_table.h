#pragma once
// SPDX-License-Identifier: MIT
//
// Every setting of a training run, declared once: key, place in TrainConfig, allowed values, help.
// A setting that is missing here exists neither as a flag nor in TOML, --help or the saved configuration.

#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "apps/config.h"

namespace ab {

template <class T> using FieldOf = std::function<T&(TrainConfig&)>;
/// Where the value lives; its type decides what is accepted.
using Field = std::variant<FieldOf<std::string>, FieldOf<bool>, FieldOf<int>, FieldOf<std::int64_t>,
                           FieldOf<std::uint64_t>, FieldOf<double>, FieldOf<std::vector<std::string>>>;

struct Setting {
  std::string key;  ///< TOML: "batch_size", "ab.cycle_steps"
  Field field;
  std::string help;
  std::string section;             ///< heading in --help and in config.toml
  double low = 0, high = 0;        ///< of numbers
  bool above_low = false;          ///< low itself is not allowed
  bool unset_at_zero = false;      ///< zero means "not given" and is not saved
  bool flag_only = false;          ///< neither read from TOML nor saved
  bool may_change = false;         ///< may differ when a run is resumed
  std::vector<std::string> words;  ///< of a setting that is one of a few words

  std::string flag() const;     ///< "--ab.cycle-steps"
  std::string kind() const;     ///< "INT", "NUM", "WORD", "TEXT", "LIST", or empty for a switch
  std::string range() const;    ///< "1 to 65536", "sgd or adamw", or empty where anything goes
  std::string allowed() const;  ///< both, as part of a sentence: "an integer, 1 to 65536"
};

/// A value as it came from a flag or a file, before it is checked.
using Value = std::variant<bool, std::int64_t, double, std::string, std::vector<std::string>>;

const std::vector<Setting>& train_settings();

/// The text of a flag as the type that the setting wants. `where` begins the error sentence.
Value value_from_text(const Setting& setting, const std::string& text, const std::string& where);
/// Checks type and range and stores. `where` begins the error sentence: "--lr", "run.toml:3: lr".
void assign(const Setting& setting, TrainConfig& config, const Value& value, const std::string& where);
/// The stored value as TOML text.
std::string toml_text(const Setting& setting, const TrainConfig& config);

}  // namespace ab
