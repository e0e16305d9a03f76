// SPDX-License-Identifier: MIT
//
// abtrain train | eval | inspect | compare: reads the command line, hands over, and turns what failed into
// one sentence and an exit code. Nothing starts (no MPI, no device) before the command line is understood.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "apps/compare_command.h"
#include "apps/config.h"
#include "apps/eval_command.h"
#include "apps/inspect_command.h"
#include "apps/terminal.h"
#include "apps/train_command.h"
#include "engine/core/check.h"

#ifndef AB_VERSION
#define AB_VERSION "unknown"
#endif

namespace {

constexpr int kInternalError = 1;
constexpr int kConfigError = static_cast<int>(ab::ErrorKind::config);

/// CLI11's help with the text of each flag wrapped, and switches written as two words.
class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter() { column_width(kFlagColumns); }
  std::string make_option_desc(const CLI::Option* option) const override {
    return ab::wrap(option->get_description(), ab::terminal_width() - kFlagColumns);
  }
  std::string make_option_name(const CLI::Option* option, bool is_positional) const override {
    const std::string name = CLI::Formatter::make_option_name(option, is_positional);
    return name.substr(0, name.find('{'));
  }

 private:
  static constexpr int kFlagColumns = 32;
};

/// A subcommand: its flags, and what runs when it was chosen.
struct Command {
  CLI::App* parser;
  std::function<int()> run;
};

/// train takes its flags from the table of settings, as text: one place judges values from flags and files.
Command add_train(CLI::App& app, std::string& config_file) {
  CLI::App* parser = app.add_subcommand("train", "train a model and write a run folder");
  parser->add_option("--config", config_file, "TOML file with any of the settings below; flags override it")
      ->type_name("FILE");
  for (const ab::FlagHelp& line : ab::train_flag_help()) {
    CLI::Option* option = nullptr;
    if (line.value.empty()) {
      std::string negated = line.flag;
      negated.insert(line.key.starts_with("ab.") ? 5 : 2, "no-");
      option = parser->add_flag(line.flag + ",!" + negated, line.text);
    } else {
      option = parser->add_option(line.flag, line.text)->type_name(line.value);
    }
    option->group(line.section);
  }
  return {parser, [parser, &config_file] {
            std::vector<ab::FlagValue> given;
            for (const ab::FlagHelp& line : ab::train_flag_help())
              if (const CLI::Option* option = parser->get_option(line.flag); option->count() > 0)
                given.emplace_back(line.key, option->as<std::string>());
            return ab::run_train(ab::resolve_train_config(given, config_file));
          }};
}

Command add_eval(CLI::App& app, ab::EvalConfig& config) {
  CLI::App* parser = app.add_subcommand("eval", "loss and accuracy of a saved model over all test images");
  parser->add_option("--model-file", config.model_file, "model.safetensors, or the run folder that holds it")
      ->required();
  parser->add_option("--dataset", config.dataset, "cifar10, cifar100 or synthetic; as trained when not given")
      ->check(CLI::IsMember({"cifar10", "cifar100", "synthetic"}));
  parser->add_option(
      "--data-dir", config.data_dir,
      "folder of the CIFAR binary files (cifar10: environment ABTRAIN_DATA_DIR when not given)");
  parser->add_option("--val-samples", config.val_samples, "the first N test images only; 0: all")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1000000000}));
  parser->add_option("--threads", config.threads, "0: all cores")->check(CLI::Range(0, 1024));
  return {parser, [&config] { return ab::run_eval(config); }};
}

Command add_inspect(CLI::App& app, std::string& file) {
  CLI::App* parser = app.add_subcommand("inspect", "layers, ranks and singular values of a safetensors file");
  parser->add_option("file", file, "model.safetensors, or the run folder that holds it")->required();
  return {parser, [&file] { return ab::run_inspect(file); }};
}

Command add_compare(CLI::App& app, ab::CompareConfig& config) {
  CLI::App* parser = app.add_subcommand("compare", "accuracy, bytes and time of several runs side by side");
  parser->add_option("runs", config.folders, "run folders; savings count against the first dense one")
      ->required();
  parser->add_option("--out", config.report, "also write a self-contained HTML page with curves")
      ->type_name("FILE");
  return {parser, [&config] { return ab::run_compare(config); }};
}

/// Arguments that CLI11 did not understand, as one sentence with the flag that may have been meant.
void refuse_unknown(const CLI::App& parser) {
  const std::vector<std::string> unknown = parser.remaining();
  if (unknown.empty()) return;
  const std::string name = unknown.front().substr(0, unknown.front().find('='));
  std::vector<std::string> known;
  for (const CLI::Option* option : parser.get_options())
    for (const std::string& flag : option->get_lnames()) known.push_back("--" + flag);
  const std::string nearest = name.starts_with("-") ? ab::nearest_name(name, known) : "";
  throw ab::Error(ab::ErrorKind::config,
                  fmt::format("abtrain {} has no flag or argument '{}'{}", parser.get_name(), name,
                              nearest.empty() ? "" : "; did you mean " + nearest + "?"));
}

/// The first word must be a subcommand; CLI11 would only say that one is required.
void refuse_unknown_command(const std::string& word, const std::vector<Command>& commands) {
  std::vector<std::string> names;
  for (const Command& command : commands) names.push_back(command.parser->get_name());
  if (word.starts_with("-") || std::find(names.begin(), names.end(), word) != names.end()) return;
  const std::string nearest = ab::nearest_name(word, names);
  throw ab::Error(ab::ErrorKind::config,
                  fmt::format("there is no command '{}'; {}", word,
                              nearest.empty() ? fmt::format("choose {}", fmt::join(names, ", "))
                                              : "did you mean " + nearest + "?"));
}

int dispatch(int argc, char** argv) {
  CLI::App app("abtrain: data-parallel training with low communication");
  app.set_version_flag("--version", std::string("abtrain ") + AB_VERSION);
  app.require_subcommand(0, 1);
  app.footer("Exit codes: 0 success, 2 configuration, 3 data, 4 model file, 5 numerics, 6 communication.");
  app.formatter(std::make_shared<HelpFormatter>());

  std::string config_file, inspected;
  ab::EvalConfig eval;
  ab::CompareConfig compare;
  const std::vector<Command> commands{add_train(app, config_file), add_eval(app, eval),
                                      add_inspect(app, inspected), add_compare(app, compare)};
  for (const Command& command : commands) command.parser->allow_extras();
  if (argc > 1) refuse_unknown_command(argv[1], commands);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help_or_version) {
    return app.exit(help_or_version);
  }
  for (const Command& command : commands) {
    if (!command.parser->parsed()) continue;
    refuse_unknown(*command.parser);
    return command.run();
  }
  throw ab::Error(ab::ErrorKind::config,
                  "there is no command; give train, eval, inspect or compare, or --help");
}

/// One line, whatever the message contains.
int fail(std::string message, int exit_code) {
  std::replace_if(
      message.begin(), message.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, ' ');
  std::fprintf(stderr, "abtrain: %s\n", message.c_str());
  return exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // a reader that goes away costs output, not the run
  try {
    return dispatch(argc, argv);
  } catch (const ab::Error& error) {
    return fail(error.what(), static_cast<int>(error.kind()));
  } catch (const CLI::ParseError& error) {
    return fail(std::string(error.what()) + " (abtrain --help)", kConfigError);
  } catch (const std::filesystem::filesystem_error& error) {
    return fail(error.what(), kConfigError);
  } catch (const std::bad_alloc&) {
    return fail("out of memory; lower --batch-size or --ranks",
                static_cast<int>(ab::ErrorKind::communication));
  } catch (const std::exception& error) {
    return fail(error.what(), kInternalError);
  }
}
