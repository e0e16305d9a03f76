// SPDX-License-Identifier: MIT
#include "apps/settings/config.h"

#include <toml++/toml.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

#include "apps/settings/hardware.h"
#include "apps/settings/setting.h"
#include "data/datasets.h"
#include "engine/backend/cpu/gemm.h"
#include "engine/core/atomic_file.h"
#include "engine/core/check.h"
#include "engine/core/path.h"
#include "engine/io/checkpoint.h"

namespace ab {
namespace {

constexpr std::uint64_t kMaxConfigBytes = 1 << 20;

/// A setting that somebody gave, as a flag or in TOML.
struct GivenValue {
  const Setting* setting;
  Value value;
  std::string where;  ///< begins a sentence about it: "--lr" or "run.toml:3: lr"
};

/// That of the setting with this key; null: it was not given.
const GivenValue* find_value(const std::vector<GivenValue>& values, const std::string& key) {
  for (const GivenValue& value : values)
    if (value.setting->key == key) return &value;
  return nullptr;
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

[[noreturn]] void refuse_unknown(const std::string& where, const std::string& key, bool is_saved) {
  std::vector<std::string> known;
  for (const Setting& setting : train_settings())
    if (!setting.flag_only) known.push_back(setting.key);
  const std::string nearest = nearest_name(key, known);
  throw Error(ErrorKind::config,
              fmt::format("{} is not a setting{}{}", where,
                          nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest),
                          is_saved ? "; the run was saved by another version of abtrain: begin a new one" : ""));
}

/// `is_saved`: the file was written by a run.
void collect(const toml::table& table, const std::string& prefix, const std::string& file, bool is_saved,
             std::vector<GivenValue>& values) {
  for (const auto& [toml_key, node] : table) {
    const std::string key = prefix + std::string(toml_key.str());
    const std::string where = fmt::format("{}:{}: {}", file, toml_key.source().begin.line, key);
    const toml::table* inner = node.as_table();
    if (inner && prefix.empty() &&
        std::ranges::find(train_settings(), key, &Setting::table) != train_settings().end()) {
      collect(*inner, key + ".", file, is_saved, values);
      continue;
    }
    const Setting* setting = find_setting(key);
    if (!setting) refuse_unknown(where, key, is_saved);
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
    AB_CHECK(setting.may_change || (!table.empty() && !tables.contains(table)),
             "{} was saved by another version of abtrain, which had no {}; begin a new run with settings of today",
             name, setting.flag());
    if (!begins_anew) values.push_back({&setting, setting.get(defaults), name});
  }
}

std::vector<GivenValue> read_flags(const std::vector<FlagValue>& flags) {
  std::vector<GivenValue> values;
  for (const auto& [key, text] : flags) {
    const Setting* setting = find_setting(key);
    AB_CHECK(setting, "--{} is not a flag", key);
    AB_CHECK(!text.empty() || !setting->never_empty, "{} is given without a value; is a variable empty?",
             setting->flag());
    values.push_back({setting, value_from_text(*setting, text, setting->flag()), setting->flag()});
  }
  return values;
}

/// Those of TOML that messages call `file`; where it is a saved configuration, with the defaults that it leaves unsaid. Its
/// values do not depend on `flags`, but a method among those brings settings of its own.
std::vector<GivenValue> parse_config(const std::string& text, const std::string& file,
                                     const std::vector<GivenValue>& flags) {
  const bool is_saved = text.starts_with(kSavedConfigBegins);
  std::vector<GivenValue> values;
  try {
    collect(toml::parse(text, file), "", file, is_saved, values);
  } catch (const toml::parse_error& problem) {
    throw Error(ErrorKind::config, fmt::format("{}:{}: {}", file, problem.source().begin.line, problem.description()));
  }
  if (is_saved) add_what_was_not_saved(file, flags, values);
  return values;
}

/// The method and its preset, whose settings other values override. A preset in a file is of the method in that file.
void choose(const std::vector<GivenValue>& flags, const std::vector<GivenValue>& file, TrainConfig& config) {
  const GivenValue *flag = find_value(flags, "method"), *own = find_value(file, "method");
  if (const GivenValue* method = flag ? flag : own) assign(*method->setting, config, method->value, method->where);
  const GivenValue* preset = find_value(flags, "preset");
  const bool is_another = flag && own && flag->value != own->value;
  if (!preset && !is_another) preset = find_value(file, "preset");
  if (preset) assign(*preset->setting, config, preset->value, preset->where);
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

/// What auto stands for: the precision of the run that --resume auto goes on with, or else what is fast here.
std::string chosen_precision(const TrainConfig& config) {
  const std::string saved = (std::filesystem::path(config.out) / "config.toml").string();
  std::error_code ignored;
  if (config.resume == "auto" && std::filesystem::exists(saved, ignored))
    return resolve_config_text({}, read_file(saved, ErrorKind::config, kMaxConfigBytes), saved, ConfigUse::plan)
        .precision;
  return config.device != "cpu" || cpu::native_bfloat16() ? "bf16" : "fp32";
}

/// Values that follow from others when nobody gave them.
void fill_in(TrainConfig& config) {
  if (config.epochs == 0 && config.steps == 0) config.epochs = 10;
  if (config.out.empty()) config.out = fmt::format("runs/{}_{}", config.model, config.method);
  if (config.precision == kAuto) config.precision = chosen_precision(config);
  config.data_dir = absolute_path(known_folder_of(find_dataset(config.dataset), config.data_dir));
  config.weights = absolute_path(config.weights);
  config.cache_disk = absolute_path(config.cache_disk);
  AB_CHECK(is_utf8(config.data_dir), "the folder of the data set holds bytes that are not UTF-8; give another name");
}

/// Whether the other setting is as it must be.
bool counts(const Beside& beside, const TrainConfig& config) {
  const Value value = find_setting(beside.key)->get(config);
  if (const bool* is_on = std::get_if<bool>(&value)) return *is_on;
  if (beside.words.empty())
    return value != Value(std::int64_t{0}) && value != Value(0.0) && value != Value(std::string());
  return std::ranges::find(beside.words, std::get<std::string>(value)) != beside.words.end();
}

/// A flag that would change nothing is a mistake; a file may have tables of several methods.
void check_flags_count(const std::vector<GivenValue>& flags, const TrainConfig& config) {
  for (const GivenValue& flag : flags) {
    const Setting& setting = *flag.setting;
    AB_CHECK(concerns(setting, config), "{} is a setting of method {}, which a run by method {} does not use",
             flag.where, setting.table(), config.method);
    const char* const wire = find_method(config.method).wire;
    AB_CHECK(!wire || setting.key != "comm_dtype", "{} would change nothing: method {} sends {}; leave it out",
             flag.where, config.method, wire);
    const auto& beside = setting.beside;
    const bool* is_on = std::get_if<bool>(&flag.value);
    if (!beside || (is_on && !*is_on) || counts(*beside, config)) continue;
    const Setting& other = *find_setting(beside->key);
    const std::string words = beside->words.empty() ? "above 0" : fmt::format("{}", fmt::join(beside->words, " or "));
    throw Error(ErrorKind::config, other.get(config) == Value(std::string())
                                       ? fmt::format("{} counts with {} only", flag.where, other.flag())
                                       : fmt::format("{} counts with {} {} only, which is {} here", flag.where,
                                                     other.flag(), words, toml_text(other, config)));
  }
}

void check_images(const TrainConfig& config) {
  const auto is_whole = [](double number) { return number == std::floor(number); };
  const std::vector<double>&random = config.rand_augment, &jitter = config.color_jitter;
  AB_CHECK(random.empty() || (random.size() == 2 && std::ranges::all_of(random, is_whole) && random[0] <= 10),
           "--rand-augment takes two whole numbers: operations per image, 0 to 10, and their strength, 0 to 30");
  const bool has_random = !random.empty() && random[0] > 0;
  AB_CHECK(!config.trivial_augment || !has_random,
           "--trivial-augment takes the place of --rand-augment; leave that out, or give it as 0,0");
  AB_CHECK(
      jitter.empty() || jitter.size() == 3 || (jitter.size() == 4 && jitter[3] <= 0.5),
      "--color-jitter takes three numbers, of brightness, contrast and saturation, or a fourth too, of hue, up to 0.5");
  const bool has_jitter = std::ranges::any_of(jitter, [](double most) { return most > 0; });
  AB_CHECK(config.repeated_augment == 1 || config.augment || has_random || config.trivial_augment || has_jitter ||
               config.random_erasing > 0,
           "--repeated-augment {} would show the same pixels {} times: no augmentation of single images is on",
           config.repeated_augment, config.repeated_augment);
  const std::vector<double>& sizes = config.image_sizes;
  AB_CHECK(sizes.size() % 2 == 0 && std::ranges::all_of(sizes, is_whole),
           "--image-sizes takes whole numbers in pairs: a size, and how many epochs have it");
  AB_CHECK(sizes.empty() || find_dataset(config.dataset).decodes,
           "--image-sizes is for images that are cropped at random sizes; those of {} have one size", config.dataset);
  std::int64_t side = config.image_size > 0 ? config.image_size : 224;  // of imagenet
  if (!config.augment || config.shift > 0)                              // training frames images as validation does
    for (std::size_t i = 0; i < sizes.size(); i += 2) side = std::max(side, static_cast<std::int64_t>(sizes[i]));
  AB_CHECK(config.framing.shorter == 0 || config.framing.shorter >= side,
           "--resize {} is less than the {} pixels that the model sees", config.framing.shorter, side);
  AB_CHECK(config.framing.decode == Decode::exact || config.cache_gb == 0,
           "--cache-gb keeps all pixels of an image, which --decode fast does not decode; give one of them");
}

/// What no single value shows.
void check_together(const TrainConfig& config, ConfigUse use) {
  if (use == ConfigUse::train) folder_of(find_dataset(config.dataset), config.data_dir);
  AB_CHECK(config.min_lr <= config.lr, "--min-lr {} is above --lr {}", config.min_lr, config.lr);
  AB_CHECK(
      config.val_samples == 0 || config.val_from_train == 0,
      "--val-from-train {} takes the place of the test images, of which --val-samples {} chooses; give one of them, or 0 for the other",
      config.val_from_train, config.val_samples);
  AB_CHECK(config.weights.empty() || config.init == Init::drawn,
           "--weights brings all values, so the run must have --init default");
  AB_CHECK(!config.autotune || !config.deterministic,
           "--autotune takes what is fastest at the time, which --deterministic must not; give one of them");
  AB_CHECK(config.betas.size() == 2, "--betas takes two numbers, for the first and the second moment, and has {}",
           config.betas.size());
  check_images(config);
  const bool apart = config.cache_share == CacheShare::node;
  AB_CHECK(!apart || config.cache_gb > 0 || !config.cache_disk.empty(),
           "--cache-share node counts with --cache-gb or --cache-disk, where a node keeps its images");
  AB_CHECK(
      !apart || config.shuffle == Shuffle::full,
      "--cache-share node gives each node images from everywhere in the set, which --shuffle blocks cannot read together");
  check_device_word(config.device);
  if (use == ConfigUse::plan) planned_wiring(config);
  else run_wiring(config);
}

/// The text of a flag; null: it was not given.
const std::string* text_of(const std::vector<FlagValue>& flags, const std::string& key) {
  const auto at = std::ranges::find(flags, key, &FlagValue::first);
  return at == flags.end() ? nullptr : &at->second;
}

/// A run folder brings its own settings and is the place that the run goes on in.
TrainConfig resolve_resumed(const std::string& folder, std::vector<FlagValue> flags, const std::string& config_file) {
  AB_CHECK(config_file.empty(), "--resume {} takes the settings of that run; leave --config away", folder);
  const std::string saved = (std::filesystem::path(folder) / "config.toml").string();
  std::error_code ignored;
  AB_CHECK(std::filesystem::exists(saved, ignored), "--resume {}: there is no run, since there is no {}", folder,
           saved);
  AB_CHECK(!text_of(flags, "out"), "--resume {} goes on in that folder; leave --out away", folder);
  std::erase_if(flags, [](const FlagValue& flag) { return flag.first == "resume"; });
  TrainConfig config = resolve_train_config(flags, saved);
  config.resume = config.out = folder;
  return config;
}

}  // namespace

TrainConfig resolve_train_config(const std::vector<FlagValue>& flags, const std::string& config_file, ConfigUse use) {
  TrainConfig config;
  if (const std::string* folder = text_of(flags, "resume"); folder && *folder != "auto" && !folder->empty()) {
    config = resolve_resumed(expand_home(*folder), flags, config_file);
  } else {
    const std::string text = config_file.empty() ? "" : read_file(config_file, ErrorKind::config, kMaxConfigBytes);
    config = resolve_config_text(flags, text, config_file, use);
  }
  // A run that goes on has as many ranks as it had, also where processes become threads, unless a flag says otherwise.
  if (config.resume.empty() || text_of(flags, "ranks")) return config;
  const int ranks = ranks_of_newest_checkpoint((std::filesystem::path(config.out) / "checkpoints").string());
  if (ranks > 0) config.ranks = ranks;
  return config;
}

TrainConfig resolve_config_text(const std::vector<FlagValue>& flags, const std::string& text, const std::string& name,
                                ConfigUse use) {
  const std::vector<GivenValue> from_flags = read_flags(flags);
  const std::vector<GivenValue> from_file = parse_config(text, name, from_flags);
  TrainConfig config;
  choose(from_flags, from_file, config);
  apply(from_file, config);
  apply(from_flags, config);
  check_flags_count(from_flags, config);
  fill_in(config);
  check_together(config, use);
  return config;
}

}  // namespace ab
