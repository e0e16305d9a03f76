// SPDX-License-Identifier: MIT
#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <string_view>

#include "apps/commands/commands.h"
#include "apps/paper/experiments.h"
#include "apps/settings/setting.h"
#include "engine/core/path.h"

namespace ab {

HelpScope::HelpScope(int argc, char** argv) {
  const std::vector<std::string> words(argv, argv + argc);
  all_ = std::ranges::any_of(words, [](const std::string& word) {
    return word == "--help-all" || word == "--man" || word.starts_with("--completion");
  });
  for (std::size_t i = 0; i < words.size(); ++i) {
    const bool apart = words[i] == "--method" && i + 1 < words.size();
    const std::string name = apart ? words[i + 1] : words[i].starts_with("--method=") ? words[i].substr(9) : "";
    if (std::ranges::find(methods(), name, &Method::name) != methods().end()) choose_method(config_.emplace(), name);
    if (i > 1 && words[1] == "reproduce" &&
        std::ranges::find(experiments(), words[i], &Experiment::name) != experiments().end())
      config_ = start_ = experiment_config(find_experiment(words[i]));
  }
}

bool HelpScope::has(const std::string& key) const {
  static constexpr std::string_view most_used =
      " model dataset data_dir weights augment ranks ranks_per_node device threads "
      "comm_dtype bucket_mb network epochs steps accumulate batch_size seed precision out "
      "overwrite resume save_every eval_every log_every optimizer lr momentum weight_decay "
      "schedule warmup_epochs label_smoothing max_grad_norm method preset ";
  if (all_ || most_used.find(" " + key + " ") != std::string_view::npos) return true;
  const Setting& setting = *find_setting(key);
  const auto& beside = setting.beside;
  const bool of_a_method =
      !setting.table().empty() || (beside && beside->key == "method" && config_ &&
                                   std::ranges::find(beside->words, config_->method) != beside->words.end());
  return of_a_method && config_ && concerns(setting, *config_);
}

GivenSettings add_settings(CLI::App* parser, const HelpScope& scope, const std::vector<std::string>& left_out) {
  const bool has_method = std::ranges::find(left_out, "method") == left_out.end();
  parser->set_help_flag("-h,--help,--help-all",
                        has_method ? "print the settings that people use most; with --method NAME those of that method "
                                     "too, and by --help-all all"
                                   : "print the settings that people use most, with the defaults of EXPERIMENT where "
                                     "it is given, and by --help-all all");
  std::vector<std::pair<std::string, CLI::Option*>> options;
  for (const FlagHelp& line : train_flag_help(scope.start())) {
    if (std::ranges::find(left_out, line.key) != left_out.end()) continue;
    CLI::Option* option = nullptr;
    if (line.value.empty()) {
      std::string negated = line.flag;
      const std::size_t dot = negated.rfind('.');  // "--ab.cut-at-warmup" to "--ab.no-cut-at-warmup"
      negated.insert(dot == std::string::npos ? 2 : dot + 1, "no-");
      option = parser->add_flag(line.flag + ",!" + negated, line.text);
    } else {
      option = parser->add_option(line.flag, line.text)->type_name(line.value);
    }
    option->group(scope.has(line.key) ? line.section : "");  // those of no group are hidden
    options.emplace_back(line.key, option);
  }
  return [options] {
    std::vector<FlagValue> given;
    for (const auto& [key, option] : options)
      if (option->count() > 0) given.emplace_back(key, option->as<std::string>());
    return given;
  };
}

std::function<std::string(const std::string&)> within(double low, double high) {
  return [=](const std::string& text) -> std::string {
    double number = 0;
    const char* const end = text.data() + text.size();
    const bool is_number = std::from_chars(text.data(), end, number).ptr == end && number >= low && number <= high;
    return is_number ? "" : fmt::format("'{}' is no number from {} to {}", text, low, high);
  };
}

CLI::Option* add_path(CLI::App* parser, const std::string& flag, std::string& path, const std::string& help) {
  return parser->add_option(flag, path, help)->transform(expand_home);
}

CLI::Option* add_config_file(CLI::App* parser, std::string& path) {
  return add_path(parser, "--config", path, "TOML file of settings; flags override it")->type_name("FILE");
}

}  // namespace ab
