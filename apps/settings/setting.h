#pragma once
// SPDX-License-Identifier: MIT
//
// One setting of a run: its key, where its value lives, what is allowed, its help. Flags, TOML keys, --help and the
// saved configuration all follow from these records; what is a word outside is a typed value inside.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "apps/settings/train_config.h"

namespace ab {

class Comm;
class Layer;
class SyncStrategy;
struct MayBecome;  // told.h
struct Replica;
struct RunFacts;

/// A value as it came from a flag or a file, before it is checked.
using Value = std::variant<bool, std::int64_t, double, std::string, std::vector<std::string>, std::vector<double>>;

/// In the order of the types of Value.
enum class SettingType { on_off, integer, real, text, list, numbers };

/// Another setting, and the words that it must be one of; none: a number other than 0.
struct Beside {
  std::string key;
  std::vector<std::string> words;
};

struct Setting {
  std::string key;  ///< TOML: "batch_size", "ab.cycle_steps"
  std::string help;
  std::string section;  ///< heading in --help and in config.toml
  SettingType type = SettingType::text;
  std::function<Value(const TrainConfig&)> get;
  std::function<void(TrainConfig&, const Value&)> set;  ///< of an allowed value: see assign()

  double low = 0, high = 0;        ///< of a number, or of each in a list
  std::optional<double> at_auto;   ///< of a real number: how the word kAuto is stored; none: a word is refused
  bool above_low = false;          ///< low itself is not allowed
  bool unset_at_zero = false;      ///< zero means "not given" and is not saved
  bool flag_only = false;          ///< neither read from TOML nor saved
  bool never_empty = false;        ///< an empty text as a flag is a variable that was not set
  bool may_change = false;         ///< may differ when a run is resumed
  std::string kept_word{};         ///< but neither to this word nor from it
  bool is_path = false;            ///< a leading ~/ stands for the home folder
  bool brings_defaults = false;    ///< replaces the defaults of others, so it is given before them
  std::vector<std::string> words;  ///< of a setting that is one of a few words
  std::optional<Beside> beside{};  ///< what it must stand beside to count

  bool counts_for(const std::string& method) const;  ///< as far as `beside` names methods

  std::string flag() const;     ///< "--ab.cycle-steps"
  std::string table() const;    ///< of TOML: that of "ab.cycle_steps" is "ab"; empty at the top
  std::string kind() const;     ///< "INT", "NUM", "WORD", "TEXT", "LIST", "NUMS", or empty for a switch
  std::string range() const;    ///< "1 to 65536", "0 to 4 or auto", "sgd or adamw", or empty where anything goes
  std::string allowed() const;  ///< both, as part of a sentence: "an integer, 1 to 65536"
};

/// The text of a flag as the type that the setting wants. `where` begins the error sentence.
Value value_from_text(const Setting& setting, const std::string& text, const std::string& where);
/// Checks type and range and stores. `where` begins the error sentence: "--lr", "run.toml:3: lr".
void assign(const Setting& setting, TrainConfig& config, const Value& value, const std::string& where);
/// The stored value as TOML text.
std::string toml_text(const Setting& setting, const TrainConfig& config);

/// Every setting of a training run, declared once (train_settings.cpp): those that all runs have, then those of each
/// method. A setting that is missing here exists neither as a flag nor in TOML, --help or the saved configuration.
const std::vector<Setting>& train_settings();
/// The one with that key; null: there is none.
const Setting* find_setting(const std::string& key);
/// The sizes of its buckets: --bucket-mb, and where its method has its own, that.
std::vector<const Setting*> bucket_settings(const TrainConfig& config);
/// Whether the run uses it: a setting of all runs, of its method, or of those that this uses.
bool concerns(const Setting& setting, const TrainConfig& config);

/// The known name nearest to `name` by edit distance, or empty when none is near enough to be meant.
std::string nearest_name(const std::string& name, const std::vector<std::string>& known);

/// Where the settings of a method start from, in place of their defaults (--preset).
struct Preset {
  const char* name;
  const char* help;             ///< whose settings they are
  void (*start)(TrainConfig&);  ///< stores them
};

/// A training method as one unit: its settings, what it refuses and its strategy. apps/methods has them all.
struct Method {
  const char* name;  ///< --method, the TOML table of its settings and the prefix of their flags
  /// Adds its settings (section.h).
  void (*declare)(std::vector<Setting>& settings) = nullptr;
  /// Published settings that its own can start from (--preset).
  std::vector<Preset> presets{};
  /// Changes defaults, before the user's values (choose_method()): what it trains best with; and what it cannot train with
  /// may be refused then only if the user asked for it, so that --method NAME alone always trains.
  void (*bring_defaults)(TrainConfig& config) = nullptr;
  /// The other methods whose settings the run takes too.
  std::vector<std::string> (*uses)(const TrainConfig& config) = nullptr;
  /// Throws Error(config) when settings of the run exclude each other, or do not fit the model (dense, of which only
  /// names and shapes count) or the number of ranks. Asked before anything is loaded or written.
  void (*check)(const TrainConfig& config, Layer& model, int world_size) = nullptr;
  /// Throws Error(config) when the run is too short for its settings. Asked before anything is written.
  void (*check_length)(const TrainConfig& config, const LrSchedule& schedule) = nullptr;
  /// Collective. Parameters get their final roles here. `config`, `model` and `world` outlive the strategy.
  std::unique_ptr<SyncStrategy> (*make)(const TrainConfig& config, Layer& model, Comm& world,
                                        const LrSchedule& schedule) = nullptr;
  /// In place of make(): a method that averages gradients or parameters and does nothing else to the model, so that others
  /// can train with it for a while, from whatever step.
  std::unique_ptr<SyncStrategy> (*average)(const TrainConfig& config, Replica replica, Comm& world,
                                           const LrSchedule& schedule) = nullptr;
  /// The runs that a run may become where only training could tell, for its plan; null: there is one.
  MayBecome (*told)(const TrainConfig& config, Layer& model, const RunFacts& facts) = nullptr;
  const char* wire =
      nullptr;               ///< how it sends all gradients or changes, whatever --comm-dtype says; null: as that says
  bool dense_start = false;  ///< --dense-steps concerns it
  bool by_nodes =
      false;  ///< saves something where nodes have several ranks, as --ranks-per-node says, and nowhere else
  bool has_factors = false;  ///< --execution and --rank-multiple concern it
  bool drifts = false;       ///< replicas that it trains differ between its averages, and optimizer state always does
  bool has_ranks = false;    ///< its plan can be given the ranks r of its factors (AssumedR)
  bool decides = false;      ///< its plan can follow the decisions of a trained run (RunFacts::decisions)
};

/// All methods; the first is kBaseline.
const std::vector<Method>& methods();
/// The method of that name. Throws Error(config) that lists them.
const Method& find_method(const std::string& name);

/// Sets config.method and config.preset, and what they bring. Throws Error(config) that lists the methods, or the presets.
void choose_method(TrainConfig& config, const std::string& name, const std::string& preset = kOurPreset);

}  // namespace ab
