// SPDX-License-Identifier: MIT
//
// abtrain train | plan | reproduce | eval | export | inspect | compare | data: reads the command line, hands over, and turns
// what failed into one sentence and an exit code. Nothing starts (no MPI, no device) before the command line
// is understood.

#include <fcntl.h>
#include <malloc.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "apps/commands/commands.h"
#include "apps/report/terminal.h"
#include "apps/settings/config.h"
#include "apps/settings/setting.h"
#include "engine/core/check.h"
#include "engine/core/threads.h"

#ifndef AB_VERSION
#define AB_VERSION "unknown"
#endif

namespace {

/// CLI11's help with the text of each flag wrapped, and switches written as two words.
class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter() { column_width(static_cast<std::size_t>(std::min(32, ab::terminal_width() / 2))); }
  std::string make_option_desc(const CLI::Option* option) const override {
    return ab::wrap(option->get_description(), ab::terminal_width() - static_cast<int>(get_column_width()));
  }
  std::string make_option_name(const CLI::Option* option, bool is_positional) const override {
    const std::string name = CLI::Formatter::make_option_name(option, is_positional);
    return name.substr(0, name.find('{'));
  }
};

/// Arguments that CLI11 did not understand, as one sentence with the flag that may have been meant.
void refuse_unknown(const CLI::App& parser) {
  const std::vector<std::string> unknown = parser.remaining();
  if (unknown.empty()) return;
  const std::string name = unknown.front().substr(0, unknown.front().find('='));
  std::vector<std::string> known;
  for (const CLI::Option* option : parser.get_options())
    for (const std::string& flag : option->get_lnames()) known.push_back("--" + flag);
  std::string nearest = name.starts_with("-") ? ab::nearest_name(name, known) : "";
  if (name.ends_with(".toml") && std::find(known.begin(), known.end(), "--config") != known.end())
    nearest = "--config " + name;
  throw ab::Error(ab::ErrorKind::config, fmt::format("abtrain {} has no flag or argument '{}'{}", parser.get_name(),
                                                     name, nearest.empty() ? "" : "; did you mean " + nearest + "?"));
}

/// One value would win over another without a word. Options that take several values may come several times.
void refuse_repeated(const CLI::App& parser, int argc, char** argv) {
  std::map<const CLI::Option*, std::string> met;
  for (int i = 2; i < argc; ++i) {
    const std::string word = argv[i], name = word.substr(0, word.find('='));
    if (word == "--") return;
    const CLI::Option* option = name.starts_with("--") ? parser.get_option_no_throw(name) : nullptr;
    if (!option || option == parser.get_help_ptr() || option->get_items_expected_max() > 1) continue;
    const auto [earlier, is_new] = met.emplace(option, name);
    if (is_new) continue;
    throw ab::Error(ab::ErrorKind::config,
                    earlier->second == name
                        ? fmt::format("{} is given more than once; give it once", name)
                        : fmt::format("{} and {} are both given; give one of them", earlier->second, name));
  }
}

/// CLI11 does not name a flag that --help hides.
void refuse_without_value(const CLI::App& parser, int argc, char** argv) {
  for (int i = 2; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--") return;
    const CLI::Option* option = word.starts_with("--") ? parser.get_option_no_throw(word) : nullptr;
    if (option && option->get_items_expected_min() > 0 &&
        (i + 1 == argc || std::string_view(argv[i + 1]).starts_with("--")))
      throw ab::Error(ab::ErrorKind::config, word + " is given without a value; is a variable empty?");
  }
}

/// An empty text would stand for nothing given, without a word. Settings of a run say themselves whether they may be empty.
void refuse_empty(const CLI::App& parser) {
  for (const CLI::Option* option : parser.get_options()) {
    const std::vector<std::string>& given = option->results();
    if (std::find(given.begin(), given.end(), "") == given.end()) continue;
    // CLI11 keeps back the name of an option that --help does not show.
    const std::string name = option->get_lnames().empty() ? option->get_name() : "--" + option->get_lnames().front();
    const bool is_setting =
        std::ranges::find(ab::train_settings(), name, &ab::Setting::flag) != ab::train_settings().end();
    if (!is_setting || (name == "--out" && parser.get_name() != "train"))
      throw ab::Error(ab::ErrorKind::config, name + " is given without a value; is a variable empty?");
  }
}

/// The first word must be a subcommand; CLI11 would only say that one is required.
void refuse_unknown_command(const std::string& word, const std::vector<ab::Command>& commands) {
  std::vector<std::string> names;
  for (const ab::Command& command : commands) names.push_back(command.parser->get_name());
  if (word.starts_with("-") || std::find(names.begin(), names.end(), word) != names.end()) return;
  const std::string nearest = ab::nearest_name(word, names);
  throw ab::Error(ab::ErrorKind::config, fmt::format("there is no command '{}'; {}", word,
                                                     nearest.empty() ? fmt::format("choose {}", fmt::join(names, ", "))
                                                                     : "did you mean " + nearest + "?"));
}

int dispatch(int argc, char** argv) {
  CLI::App app("abtrain: data-parallel training with low communication");
  app.set_version_flag("--version", std::string("abtrain ") + AB_VERSION);
  app.require_subcommand(0, 1);
  app.footer(ab::wrap(
      "Exit codes: 0 success, 2 configuration, 3 data, 4 model file or checkpoint, 5 numerics, 6 communication "
      "or device, 75 stopped as told, resume with train --resume (130 by Ctrl-C).",
      ab::terminal_width()));
  app.formatter(std::make_shared<HelpFormatter>());

  std::string shell;
  bool man = false;
  app.add_option("--completion", shell,
                 "print a script that completes commands and flags in a shell: bash, zsh or fish")
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  app.add_flag("--man", man, "print the manual page, for man -l");
  const ab::HelpScope scope(argc, argv);
  const std::vector<ab::Command> commands{ab::train_command(app, scope),     ab::plan_command(app, scope),
                                          ab::reproduce_command(app, scope), ab::eval_command(app),
                                          ab::export_command(app),           ab::inspect_command(app),
                                          ab::compare_command(app),          ab::data_command(app)};
  for (const ab::Command& command : commands) command.parser->allow_extras();
  if (argc > 1) refuse_unknown_command(argv[1], commands);
  for (const ab::Command& command : commands)
    if (argc > 1 && command.parser->get_name() == argv[1]) {
      refuse_repeated(*command.parser, argc, argv);
      refuse_without_value(*command.parser, argc, argv);
    }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help_or_version) {
    return app.exit(help_or_version);
  }
  if (man || !shell.empty()) {
    ab::print_text(man ? ab::man_page(app) : ab::completion_script(app, shell));
    return 0;
  }
  for (const ab::Command& command : commands) {
    if (!command.parser->parsed()) continue;
    refuse_unknown(*command.parser);
    refuse_empty(*command.parser);
    ab::set_compute_threads(0);  // of a rank alone
    return command.run();
  }
  throw ab::Error(
      ab::ErrorKind::config,
      "there is no command; give train, plan, reproduce, eval, export, inspect, compare or data, or --help");
}

/// The C library reserves 64 MiB of addresses for each thread that asks for memory; where ulimit counts them, threads share.
void spare_addresses() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) mallopt(M_ARENA_MAX, 1);
}

/// A closed stream's number would go to the next file that is opened, and what is printed into that file.
void open_closed_streams() {
  for (int descriptor = 0; descriptor <= 2; ++descriptor)
    if (::fcntl(descriptor, F_GETFD) < 0) (void)!::open("/dev/null", O_RDWR);  // takes the lowest that is free
}

}  // namespace

int main(int argc, char** argv) {
  open_closed_streams();
  spare_addresses();
  ab::report_what_escapes();
  std::signal(SIGPIPE, SIG_IGN);  // a reader that goes away costs output, not the run
  std::signal(SIGXFSZ, SIG_IGN);  // a file that grows too large is an error of write()
  try {
    return dispatch(argc, argv);
  } catch (const std::exception& error) {
    return ab::report_error(error);
  }
}
