// SPDX-License-Identifier: MIT
//
// Completions for shells and the manual page, from the flags of the commands and the table of settings.
#include <CLI/CLI.hpp>
#include <map>

#include "apps/commands/commands.h"
#include "apps/paper/experiments.h"
#include "apps/settings/setting.h"
#include "apps/train/run_folder.h"
#include "engine/core/check.h"

namespace ab {
namespace {

using Names = std::vector<std::string>;
using CLI::detail::find_and_replace;

std::string joined(const Names& words) { return fmt::format("{}", fmt::join(words, " ")); }

/// A flag of a command, or an argument, which has no names.
struct Flag {
  Names names;        ///< "--augment", "--no-augment"
  std::string value;  ///< "INT"; empty: a switch
  std::string words;  ///< that the value is one of; empty: any
  std::string text, group;
  bool is_preset() const { return !names.empty() && names[0] == "--preset"; }  // whose words the method decides
  bool takes_file() const { return std::string_view("INT UINT FLOAT NUMS").find(value) == std::string_view::npos; }
};

/// The words that CLI11 checks a value against, or those of the setting.
Names words_of(const CLI::Option& option) {
  Names words;
  const std::string type = option.get_type_name(), name = option.get_name();
  if (const std::size_t set = type.find('{'); set != std::string::npos)
    return CLI::detail::split(type.substr(set + 1, type.find('}') - set - 1), ',');
  if (name == "EXPERIMENT") {
    words = {"all"};
    for (const Experiment& experiment : experiments()) words.push_back(experiment.name);
  }
  for (const Setting& setting : train_settings())
    if (setting.flag() == name) words = setting.words;
  return words;
}

std::vector<Flag> flags_of(const CLI::App& command) {
  std::vector<Flag> flags;
  for (const CLI::Option* option : command.get_options()) {
    std::string value = option->get_items_expected_max() > 0 ? option->get_type_name() : "";
    value = option->get_lnames().empty() ? option->get_name() : value.substr(0, value.find(':'));
    flags.push_back({{}, value, joined(words_of(*option)), option->get_description(), option->get_group()});
    for (const std::string& name : option->get_lnames()) flags.back().names.push_back("--" + name);
  }
  return flags;
}

std::vector<const CLI::App*> commands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

/// For every shell, as long as fish, which obeys backslashes between quotes, is given none.
std::string in_quotes(const std::string& text) { return "'" + find_and_replace(text, "'", "'\\''") + "'"; }

/// The first clause of a help text.
std::string brief(const std::string& text) {
  return text.substr(0, std::min({text.find(';'), text.find(" ("), text.find(": ")}));
}

/// The words of --preset: `row` makes a case of each method and its words; the last one is for any method.
template <class Row> std::string preset_cases(const Row& row) {
  std::string cases;
  Names all{kOurPreset};
  for (const Method& method : methods()) {
    Names words{kOurPreset};
    for (const Preset& preset : method.presets) words.push_back(preset.name);
    for (const std::string& word : words)
      if (std::ranges::find(all, word) == all.end()) all.push_back(word);
    cases += row(method.name, joined(words));
  }
  return cases + row("*", joined(all));
}

/// For bash and zsh: sets `found` to the words of a flag.
std::string preset_case() {
  return "case $method in\n" + preset_cases([](const std::string& method, const std::string& words) {
           return fmt::format("    {}) found={} ;;\n", method, in_quotes(words));
         }) +
         "    esac";
}

std::string bash_completion(const CLI::App& app) {
  std::map<std::string, std::string> values;
  std::string commands;
  const auto add = [&](const std::string& pattern, const CLI::App& command, std::string arguments) {
    Names names;
    for (const Flag& flag : flags_of(command)) {
      names.insert(names.end(), flag.names.begin(), flag.names.end());
      if (flag.names.empty() && !flag.words.empty()) arguments = flag.words;
      else if (!flag.words.empty()) values.emplace(flag.names[0], flag.words);
    }
    commands += fmt::format("    {}) flags={} found={} ;;\n", pattern, in_quotes(joined(names)), in_quotes(arguments));
  };
  Names subcommands;
  for (const CLI::App* command : commands_of(app)) {
    subcommands.push_back(command->get_name());
    add(subcommands.back(), *command, "");
  }
  add("*", app, joined(subcommands));
  std::string words;
  for (const auto& [flag, found] : values) words += fmt::format("    {}) found={} ;;\n", flag, in_quotes(found));
  return R"(# For bash, by abtrain --completion bash.
_abtrain() {
  local word=${COMP_WORDS[COMP_CWORD]} flag=${COMP_WORDS[COMP_CWORD - 1]} command= method= flags= found=
  if [[ $word == = ]]; then word=; elif [[ $flag == = ]]; then flag=${COMP_WORDS[COMP_CWORD - 2]}; fi
  ((COMP_CWORD > 1)) && command=${COMP_WORDS[1]}
  [[ " ${COMP_WORDS[*]} " =~ ' --method '(= )?([a-z-]+) ]] && method=${BASH_REMATCH[2]}
  case $command in
)" + commands +
         R"(  esac
  if [[ $word == -* ]]; then found=$flags; elif [[ $flag == --* ]]; then found=; fi
  case $flag in
)" + words +
         "    --preset) " + preset_case() + R"( ;;
  esac
  COMPREPLY=($(compgen -W "$found" -- "$word"))
}
complete -o default -F _abtrain abtrain
)";
}

std::string zsh_completion(const CLI::App& app) {
  const auto plain = [](std::string text) {
    for (const std::string special : {"[", "]", ":"}) text = find_and_replace(text, special, "\\" + special);
    return text;
  };
  const auto case_of = [&](const std::string& pattern, const CLI::App& command, const std::string& arguments) {
    Names specs{fmt::format("    {}) _arguments {}", pattern, arguments)};
    for (const Flag& flag : flags_of(command)) {
      const std::string words = flag.is_preset()      ? "_abtrain_presets"
                                : !flag.words.empty() ? "(" + flag.words + ")"
                                : flag.takes_file()   ? "_files"
                                                      : " ";
      const std::string value = flag.value.empty() ? "" : fmt::format(":{}:{}", flag.value, words);
      if (flag.names.empty()) specs.push_back(in_quotes((flag.words.empty() ? "*" : "") + value));
      for (const std::string& name : flag.names)
        specs.push_back(
            in_quotes(fmt::format("{}{}[{}]{}", name, value.empty() ? "" : "=", plain(brief(flag.text)), value)));
    }
    return fmt::format("{} ;;\n", fmt::join(specs, " \\\n      "));
  };
  std::string commands, words;
  for (const CLI::App* command : commands_of(app)) {
    commands += case_of(command->get_name(), *command, "");
    words += fmt::format(" {}\\:\"{}\"", command->get_name(), plain(command->get_description()));
  }
  return R"(#compdef abtrain
# For zsh, by abtrain --completion zsh.
_abtrain_presets() {
  local method found
  [[ " $words " =~ ' --method[= ]([a-z-]+)' ]] && method=$match[1]
    )" + preset_case() +
         R"(
  compadd -- ${=found}
}
_abtrain() {
  local command
  if [[ $CURRENT -gt 2 && $words[2] != -* ]]; then command=$words[2]; shift words; ((CURRENT--)); fi
  case $command in
)" + commands +
         case_of("*", app, in_quotes(":command:((" + words + "))")) + R"(  esac
}
_abtrain "$@"
)";
}

std::string fish_completion(const CLI::App& app) {
  std::string text =
      "# For fish, by abtrain --completion fish.\nfunction __abtrain_presets\n"
      "  switch \"$(string match -rg -- '--method[= ]([a-z-]+)' (commandline -pc))\"\n" +
      preset_cases([](const std::string& method, const std::string& words) {
        return fmt::format("    case {}\n      string split ' ' {}\n", in_quotes(method), in_quotes(words));
      }) +
      "  end\nend\ncomplete -c abtrain -f\n";
  const auto add = [&](const std::string& condition, const CLI::App& command) {
    const std::string begin = "complete -c abtrain -n " + in_quotes(condition);
    for (const Flag& flag : flags_of(command)) {
      const std::string words = flag.is_preset() ? "(__abtrain_presets)" : flag.words;
      const std::string value = flag.value.empty()  ? ""
                                : !words.empty()    ? " -x -a " + in_quotes(words)
                                : flag.takes_file() ? " -r -F"
                                                    : " -x";
      if (flag.names.empty()) text += fmt::format("{}{}\n", begin, words.empty() ? " -F" : " -a " + in_quotes(words));
      for (const std::string& name : flag.names)
        text += fmt::format("{} -l {}{} -d {}\n", begin, name.substr(2), value, in_quotes(brief(flag.text)));
    }
  };
  add("__fish_use_subcommand", app);
  for (const CLI::App* command : commands_of(app)) {
    text += fmt::format("complete -c abtrain -n __fish_use_subcommand -a {} -d {}\n", command->get_name(),
                        in_quotes(command->get_description()));
    add("__fish_seen_subcommand_from " + command->get_name(), *command);
  }
  return text;
}

/// Text as roff takes it, on one line.
std::string roff(const std::string& text) {
  return find_and_replace(find_and_replace(find_and_replace(text, "\\", "\\e"), "-", "\\-"), "\n", " ");
}

std::string roff_item(const std::string& bold, const std::string& italic, const std::string& text) {
  return fmt::format(".TP\n\\fB{}\\fR{}\\fI{}\\fR\n\\&{}\n", roff(bold), bold.empty() ? "" : " ", roff(italic),
                     roff(text));
}

/// The flags of a command by their groups. Those that are like train's are described there.
std::string roff_flags(const CLI::App& command, const CLI::App& train) {
  std::map<std::string, std::string> of_train;
  std::string text, group;
  const auto item = [](const Flag& flag) {
    return roff_item(fmt::format("{}", fmt::join(flag.names, ", ")), flag.value, flag.text);
  };
  if (&train != &command)
    for (const Flag& flag : flags_of(train)) of_train[item(flag)] = flag.names[0];
  const std::size_t all = of_train.size();
  for (const Flag& flag : flags_of(command)) {
    if (of_train.erase(item(flag)) > 0) continue;
    if (flag.group != group) text += fmt::format(".SS {}: {}\n", command.get_name(), roff(flag.group));
    group = flag.group;
    text += item(flag);
  }
  Names others;
  for (const auto& [unused, name] : of_train)
    if (!command.get_option_no_throw(name)) others.push_back(name);
  if (of_train.size() < all)
    text += fmt::format(".PP\nOf train also all other flags, but not {}.\n",
                        roff(fmt::format("{}", fmt::join(others, ", "))));
  return text;
}

}  // namespace

std::string completion_script(const CLI::App& app, const std::string& shell) {
  return shell == "bash" ? bash_completion(app) : shell == "zsh" ? zsh_completion(app) : fish_completion(app);
}

std::string man_page(const CLI::App& app) {
  std::string commands, flags;
  for (const CLI::App* command : commands_of(app)) {
    commands += roff_item(command->get_name(), "", command->get_description());
    flags += roff_flags(*command, *commands_of(app).front());
  }
  return fmt::format(
             ".TH ABTRAIN 1 \"\" \"{}\"\n.SH NAME\n{}\n.SH SYNOPSIS\n\\fBabtrain\\fR \\fICOMMAND\\fR [\\fIflags\\fR]\n",
             app.version(), roff(find_and_replace(app.get_description(), ": ", " - "))) +
         ".SH COMMANDS\n" + commands + ".SH OPTIONS\n" + flags + ".SH EXIT STATUS\n" + roff(app.get_footer()) +
         "\n.SH ENVIRONMENT\n" + roff_item("ABTRAIN_DATA_DIR", "", "folder of CIFAR-10 when --data-dir is not given") +
         roff_item("OMP_NUM_THREADS", "", "threads of a rank when --threads is not given") +
         roff_item("XDG_CACHE_HOME", "", "where synthetic images are cached, ~/.cache when not set") +
         ".SH FILES\nA run folder holds:\n" + roff_item(kConfigFile, "", "the settings of the run, for --config") +
         roff_item(kMetricsFile, "", "loss, speed and bytes on the way") + roff_item(kSummaryFile, "", "the result") +
         roff_item(kModelFile, "", "the model") +
         roff_item(kAverageFile, "", "with --ema-decay, the model of averaged weights") +
         roff_item(fmt::format("{}/", kCheckpointFolder), "", "what --resume goes on from");
}

}  // namespace ab
