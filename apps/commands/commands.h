#pragma once
// SPDX-License-Identifier: MIT
//
// The commands of the program, one in a file, with their flags and what they share.

#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "apps/settings/config.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace ab {

/// A subcommand: its flags, and what runs when it was chosen, which returns the exit code and throws ab::Error.
struct Command {
  CLI::App* parser;
  std::function<int()> run;
};

/// Settings that --help shows, by the words of the command line.
class HelpScope {
 public:
  HelpScope(int argc, char** argv);
  /// Whose values are the defaults; null: those of the program.
  const TrainConfig* start() const { return start_ ? &*start_ : nullptr; }
  bool has(const std::string& key) const;

 private:
  bool all_ = false;
  std::optional<TrainConfig> config_;  // of --method, or of an experiment
  std::optional<TrainConfig> start_;   // of an experiment
};

Command train_command(CLI::App& app, const HelpScope& scope);
Command plan_command(CLI::App& app, const HelpScope& scope);
Command reproduce_command(CLI::App& app, const HelpScope& scope);
Command eval_command(CLI::App& app);
Command export_command(CLI::App& app);
Command inspect_command(CLI::App& app);
Command compare_command(CLI::App& app);
Command data_command(CLI::App& app);

/// `runs`: this one and as many steps of each that follows; of several, a line says how long all will take, once steps are timed.
int run_train(const TrainConfig& config, int runs = 1);
/// Prints run folders side by side, and writes the page of them unless `page` is empty.
int run_compare(const std::vector<std::string>& folders, const std::string& page);
/// Warns where --method has a use for nodes of several ranks and --ranks-per-node gives none.
void warn_of_lone_ranks(const TrainConfig& config, int world_size);
/// The text of abtrain inspect, `width` columns wide. Throws Error(checkpoint) for a file that cannot be read.
std::string inspect_text(const std::string& file, int width);

// Flags that commands share.

/// The settings that were given on the command line.
using GivenSettings = std::function<std::vector<FlagValue>()>;
/// Flags of a configuration come from the table of settings, as text: one place judges values from flags and files.
/// `left_out`: settings that have no meaning here.
GivenSettings add_settings(CLI::App* parser, const HelpScope& scope, const std::vector<std::string>& left_out = {});
CLI::Option* add_config_file(CLI::App* parser, std::string& path);
/// The check of a flag that takes a number from `low` to `high`. CLI::Range takes nan for one.
std::function<std::string(const std::string&)> within(double low, double high);
/// The path of a file or folder, in which ~ is the home folder.
CLI::Option* add_path(CLI::App* parser, const std::string& flag, std::string& path, const std::string& help);

// The command line as shells and manuals know it; `app` shows all settings in its help.

/// abtrain --completion: a script for bash, zsh or fish.
std::string completion_script(const CLI::App& app, const std::string& shell);
/// abtrain --man: the manual page, in roff.
std::string man_page(const CLI::App& app);

// The words and the exit code of a failure.

/// Prints "abtrain: <context><what happened>" as one line of stderr, whatever the message contains, and returns the exit
/// code that belongs to the error: one that is documented, whoever threw it.
int report_error(const std::exception& error, const std::string& context = "");

/// From now on also what no handler catches, and the end that a library gives to the program (exit code 1), is reported so.
void report_what_escapes();

// The files that --out FILE may replace, for every command that writes a file where its user says.

/// A kind of file that a command writes.
struct OutKind {
  const char* what;    ///< "a plan"
  const char* ending;  ///< of its name: ".json"
  const char* begins;  ///< every file of this kind that abtrain wrote
  const char* mark;    ///< in each of them, and in no other
};

inline constexpr OutKind kReportPage{"a page of abtrain compare", ".html", "<!doctype html>\n",
                                     "<meta name=\"generator\" content=\"abtrain\">"},
    kPlanFile{"a plan of abtrain", ".json", "{\n  \"method\": ", "\"dense_bfloat16\": {"},
    kModelExport{"a model file of abtrain", ".safetensors", "", "\"format\":\"abtrain\""},
    kPaperTable{"a table of abtrain reproduce", ".md", "# ", "in dense data-parallel training with float32 gradients"};

/// The file that `--out out` stands for, links followed. Throws Error(config), and leaves everything as it is, unless that is
/// free, empty or a file of the same kind by abtrain, and neither one of `inputs`, which the command reads, nor of a run.
std::string out_file(const std::string& out, const OutKind& kind, const std::vector<std::string>& inputs = {});

}  // namespace ab
