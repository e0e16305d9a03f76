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
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apps/commands/commands.h"
#include "apps/paper/experiments.h"
#include "apps/report/terminal.h"
#include "apps/settings/config.h"
#include "apps/settings/setting.h"
#include "data/datasets.h"
#include "engine/core/check.h"
#include "engine/core/path.h"
#include "engine/core/precision.h"
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

/// A subcommand: its flags, and what runs when it was chosen.
struct Command {
  CLI::App* parser;
  std::function<int()> run;
};

/// Settings that --help shows.
class HelpScope {
 public:
  HelpScope(int argc, char** argv) {
    const std::vector<std::string> words(argv, argv + argc);
    all_ = std::ranges::any_of(words, [](const std::string& word) {
      return word == "--help-all" || word == "--man" || word.starts_with("--completion");
    });
    for (std::size_t i = 0; i < words.size(); ++i) {
      const bool apart = words[i] == "--method" && i + 1 < words.size();
      const std::string name = apart ? words[i + 1] : words[i].starts_with("--method=") ? words[i].substr(9) : "";
      const auto& known = ab::methods();
      if (std::ranges::any_of(known, [&](const auto& method) { return name == method.name; }))
        ab::choose_method(config_.emplace(), name);
      if (i > 1 && words[1] == "reproduce" && ab::paper_configs().contains(words[i]))
        config_ = start_ = ab::experiment_config(ab::find_experiment(words[i]));
    }
  }
  /// Whose values are the defaults; null: those of the program.
  const ab::TrainConfig* start() const { return start_ ? &*start_ : nullptr; }
  bool has(const std::string& key) const {
    static constexpr std::string_view most_used =
        " model dataset data_dir weights augment ranks ranks_per_node device threads "
        "comm_dtype bucket_mb network epochs steps accumulate batch_size seed precision out "
        "overwrite resume save_every eval_every log_every optimizer lr momentum weight_decay "
        "schedule warmup_epochs label_smoothing max_grad_norm method preset ";
    const ab::Setting& setting = *ab::find_setting(key);
    const auto& beside = setting.beside;
    const bool of_a_method =
        !setting.table().empty() || (beside && beside->key == "method" && config_ &&
                                     std::ranges::find(beside->words, config_->method) != beside->words.end());
    return all_ || most_used.find(" " + key + " ") != std::string_view::npos ||
           (of_a_method && config_ && ab::concerns(setting, *config_));
  }

 private:
  bool all_ = false;
  std::optional<ab::TrainConfig> config_;  // of --method, or of an experiment
  std::optional<ab::TrainConfig> start_;   // of an experiment
};

/// Flags of a configuration come from the table of settings, as text: one place judges values from flags and
/// files. `left_out`: settings that have no meaning here.
void add_settings(CLI::App* parser, const HelpScope& scope, const std::vector<std::string>& left_out = {}) {
  parser->set_help_flag(
      "-h,--help,--help-all",
      "print the settings that people use most; with --method NAME those of that method too, and by --help-all all");
  for (const ab::FlagHelp& line : ab::train_flag_help(scope.start())) {
    if (std::find(left_out.begin(), left_out.end(), line.key) != left_out.end()) continue;
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
  }
}

void add_config_file(CLI::App* parser, std::string& config_file) {
  parser->add_option("--config", config_file, "TOML file with any of the settings below; flags override it")
      ->type_name("FILE")
      ->transform(ab::expand_home);
}

/// The settings that were given.
std::vector<ab::FlagValue> given_settings(const CLI::App* parser, const std::vector<std::string>& left_out = {}) {
  std::vector<ab::FlagValue> given;
  for (const ab::FlagHelp& line : ab::train_flag_help()) {
    if (std::find(left_out.begin(), left_out.end(), line.key) != left_out.end()) continue;
    if (const CLI::Option* option = parser->get_option(line.flag); option->count() > 0)
      given.emplace_back(line.key, option->as<std::string>());
  }
  return given;
}

Command add_train(CLI::App& app, const HelpScope& scope, std::string& config_file) {
  CLI::App* parser = app.add_subcommand("train", "train a model and write a run folder");
  add_config_file(parser, config_file);
  add_settings(parser, scope);
  return {parser, [parser, &config_file] {
            return ab::run_train(ab::resolve_train_config(given_settings(parser), config_file));
          }};
}

Command add_plan(CLI::App& app, const HelpScope& scope, std::string& config_file, ab::PlanCommand& plan) {
  static const std::vector<std::string> left_out{"out", "overwrite", "resume", "resume_step"};
  CLI::App* parser = app.add_subcommand("plan", "bytes, memory and waiting of a run, before it is trained");
  add_config_file(parser, config_file);
  add_settings(parser, scope, left_out);
  ab::PlanOptions& options = plan.options;
  parser->add_option("--world", options.world_size, "number of ranks; as --ranks, without its limit")
      ->check(CLI::Range(1, 65536))
      ->type_name("INT")
      ->group("Plan");
  parser->add_option("--classes", options.classes, "outputs of the model; as the data set has when not given")
      ->check(CLI::Range(2, 1000000))
      ->type_name("INT")
      ->group("Plan");
  CLI::Option* ratio = parser->add_option("--ratio", options.ratio, "keep this share of all singular values")
                           ->check(CLI::Range(1e-6, 1.0))
                           ->type_name("NUM")
                           ->group("Plan");
  CLI::Option* factors = parser
                             ->add_option("--factors-from", options.factors_from,
                                          "take the ranks r of a trained run: its folder or summary.json")
                             ->excludes(ratio)
                             ->type_name("PATH")
                             ->transform(ab::expand_home)
                             ->group("Plan");
  CLI::Option* decisions =
      parser
          ->add_option("--decisions-from", options.decisions_from,
                       "take what a trained run decided on the way (methods daso and artopk): its folder")
          ->type_name("PATH")
          ->transform(ab::expand_home)
          ->group("Plan");
  parser
      ->add_option(
          "--step-ms", options.step_milliseconds,
          "computing of one step; of --factors-from's run when not given; auto: of the run of --factors-from or "
          "--decisions-from, else of an H200 at 30 % of its peak in 16 bits")
      ->transform(CLI::Validator(
          [](std::string& text) {
            if (text != ab::kAuto) return CLI::Range(0.0, 1e9)(text);
            text = fmt::format("{}", ab::kAutoStep);
            return std::string();
          },
          ""))
      ->type_name("NUM")
      ->group("Plan");
  CLI::Option* out = parser->add_option("--out", plan.out, "also write the plan as JSON")
                         ->type_name("FILE")
                         ->transform(ab::expand_home)
                         ->group("Plan");
  parser->add_flag("--compare", plan.compare, "plan by every method and print a table; needs --step-ms")
      ->excludes(ratio)
      ->excludes(factors)
      ->excludes(decisions)
      ->excludes(out)
      ->group("Plan");
  return {parser,
          [parser, &config_file, &plan] { return ab::run_plan(given_settings(parser, left_out), config_file, plan); }};
}

Command add_reproduce(CLI::App& app, const HelpScope& scope, ab::ReproduceCommand& command) {
  static const std::vector<std::string> left_out{"out", "overwrite", "resume", "resume_step", "method", "preset"};
  CLI::App* parser = app.add_subcommand("reproduce", "train or plan an experiment of the paper beside its figures");
  parser->add_option("EXPERIMENT", command.experiment, "its name, or all; without it they are listed");
  parser->add_flag("--list", command.list, "list the experiments");
  parser->add_flag("--dry-run", command.dry_run, "only plan what would be sent; needs no data");
  parser->add_flag("--verbose", command.verbose, "of all: every experiment at every rank fraction");
  parser
      ->add_option("--scale", command.adjustments.scale,
                   "this share of images, ranks and steps, schedules in proportion; the model stays (default 1)")
      ->type_name("NUM");
  CLI::Option* ratio = parser
                           ->add_option("--ratio", command.ranks.ratio,
                                        "plan with this share of all singular values kept; several shares when "
                                        "not given")
                           ->check(CLI::Range(1e-6, 1.0))
                           ->type_name("NUM");
  parser
      ->add_option("--factors-from", command.ranks.runs,
                   "plan with the ranks r of trained runs of the same model: folders or summary.json files")
      ->excludes(ratio)
      ->type_name("PATH")
      ->transform(ab::expand_home);
  parser
      ->add_option("--out", command.out,
                   "folder of the runs dense and ab and of the table, reproduce.md (runs/reproduce/EXPERIMENT when "
                   "not given); finished runs in it are kept")
      ->type_name("FOLDER")
      ->transform(ab::expand_home);
  parser->add_flag("--overwrite", command.overwrite, "train again what the folder already holds");
  add_settings(parser, scope, left_out);
  return {parser, [parser, &command] {
            command.adjustments.flags = given_settings(parser, left_out);
            return ab::run_reproduce(command);
          }};
}

Command add_eval(CLI::App& app, ab::EvalConfig& config) {
  CLI::App* parser = app.add_subcommand("eval", "loss and accuracy of a saved model over all test images");
  parser->add_option("--model-file", config.model_file, "model.safetensors, or the run folder that holds it")
      ->required()
      ->transform(ab::expand_home);
  parser->add_option("--model", config.model, "network in a file of torchvision or timm: resnet50, vit_b_16 …");
  parser->add_option("--classes", config.classes, "with --model: its outputs; as the data set has when not given")
      ->check(CLI::Range(1, 1000000));
  parser
      ->add_option("--image-size", config.image_size,
                   "height and width that the model sees; as trained, or as the data set has them, when not given")
      ->check(CLI::Range(1, 1024));
  parser
      ->add_option("--dataset", config.dataset,
                   fmt::format("{}; as trained when not given", fmt::join(ab::dataset_names(), ", ")))
      ->check(CLI::IsMember(ab::dataset_names()));
  parser
      ->add_option("--data-dir", config.data_dir,
                   "folder of the CIFAR binary files (cifar10: environment ABTRAIN_DATA_DIR when not "
                   "given), or of ImageNet's train and val")
      ->transform(ab::expand_home);
  parser->add_option("--val-samples", config.val_samples, "the first N test images only; 0: all")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1000000000}));
  parser->add_option("--device", config.device, "processor: cpu (default), cuda, or cuda:N for GPU N");
  parser->add_option("--threads", config.threads, "0: all cores")->check(CLI::Range(0, 1024));
  parser->add_option("--precision", config.precision, "type of activations: fp32, tf32 (GPUs only), bf16 or fp16")
      ->check(CLI::IsMember(ab::precision_names()));
  parser->add_flag("--val-views", config.views, "over six views of each image: shifted by a pixel and mirrored");
  return {parser, [&config] { return ab::run_eval(config); }};
}

Command add_export(CLI::App& app, ab::ExportConfig& config) {
  CLI::App* parser =
      app.add_subcommand("export", "write a trained model for PyTorch, with torchvision's or timm's names");
  parser->add_option("--model-file", config.model_file, "model.safetensors, or the run folder that holds it")
      ->required()
      ->transform(ab::expand_home);
  parser->add_option("--names", config.names, "torchvision (default) or timm")
      ->check(CLI::IsMember({"torchvision", "timm"}));
  parser->add_option("--factors", config.factors, "factored weights as W (merged, default) or as A and B (ab)")
      ->check(CLI::IsMember({"merged", "ab"}));
  parser
      ->add_option("--out", config.out, "file to write; model_torchvision.safetensors beside the model when not given")
      ->type_name("FILE")
      ->transform(ab::expand_home);
  return {parser, [&config] {
            ab::start_compute_threads();
            return ab::run_export(config);
          }};
}

Command add_inspect(CLI::App& app, std::string& file) {
  CLI::App* parser = app.add_subcommand("inspect", "layers, ranks and singular values of a safetensors file");
  parser->add_option("file", file, "model.safetensors, or the run folder that holds it")
      ->required()
      ->transform(ab::expand_home);
  return {parser, [&file] {
            ab::start_compute_threads();
            return ab::run_inspect(file);
          }};
}

Command add_compare(CLI::App& app, ab::CompareConfig& config) {
  CLI::App* parser = app.add_subcommand("compare", "accuracy, bytes and time of several runs side by side");
  parser->add_option("runs", config.folders, "run folders; savings count against the first dense one")
      ->required()
      ->transform(ab::expand_home);
  parser->add_option("--out", config.report, "also write a self-contained HTML page with curves")
      ->type_name("FILE")
      ->transform(ab::expand_home);
  return {parser, [&config] { return ab::run_compare(config); }};
}

Command add_data(CLI::App& app, ab::DataCommand& command) {
  CLI::App* parser = app.add_subcommand("data", "pack, check, index or time the images of ImageNet");
  parser
      ->add_option(
          "ACTION", command.action,
          "pack FROM TO: write the images of FROM to archives in TO; verify DIR: decode every image; index DIR: "
          "write the indexes that archives lack; bench DIR: tell how many images a second training would get")
      ->required()
      ->check(CLI::IsMember({"pack", "verify", "index", "bench"}));
  parser->add_option("folders", command.folders, "FROM and TO, or DIR: folders of train and val")
      ->required()
      ->transform(ab::expand_home);
  CLI::Option* side =
      parser
          ->add_option("--side", command.pack.side,
                       "pack images with a shorter side of at most so many pixels; without it pixels stay as they are")
          ->check(CLI::Range(1, 65500));
  parser->add_option("--quality", command.pack.quality, "of scaled images as JPEG (default 90)")
      ->check(CLI::Range(1, 100))
      ->needs(side);
  parser->add_option("--threads", command.pack.threads, "0: all cores")->check(CLI::Range(0, 1024));
  return {parser, [&command] { return ab::run_data(command); }};
}

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

/// An empty text would stand for nothing given, without a word. Settings of a run say themselves whether they may be empty.
void refuse_empty(const CLI::App& parser) {
  std::vector<std::string> settings;
  for (const ab::FlagHelp& line : ab::train_flag_help()) settings.push_back(line.flag);
  for (const CLI::Option* option : parser.get_options()) {
    const std::vector<std::string>& given = option->results();
    if (std::find(given.begin(), given.end(), "") == given.end()) continue;
    const std::string name = option->get_name();
    const bool is_setting = std::find(settings.begin(), settings.end(), name) != settings.end();
    if (!is_setting || (name == "--out" && parser.get_name() != "train"))
      throw ab::Error(ab::ErrorKind::config, name + " is given without a value; is a variable empty?");
  }
}

/// The first word must be a subcommand; CLI11 would only say that one is required.
void refuse_unknown_command(const std::string& word, const std::vector<Command>& commands) {
  std::vector<std::string> names;
  for (const Command& command : commands) names.push_back(command.parser->get_name());
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

  std::string config_file, inspected, shell;
  bool man = false;
  app.add_option("--completion", shell,
                 "print a script that completes commands and flags in a shell: bash, zsh or fish")
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  app.add_flag("--man", man, "print the manual page, for man -l");
  ab::EvalConfig eval;
  ab::ExportConfig exported;
  ab::CompareConfig compare;
  ab::DataCommand data;
  ab::PlanCommand plan;
  ab::ReproduceCommand reproduce;
  const HelpScope scope(argc, argv);
  const std::vector<Command> commands{add_train(app, scope, config_file),
                                      add_plan(app, scope, config_file, plan),
                                      add_reproduce(app, scope, reproduce),
                                      add_eval(app, eval),
                                      add_export(app, exported),
                                      add_inspect(app, inspected),
                                      add_compare(app, compare),
                                      add_data(app, data)};
  for (const Command& command : commands) command.parser->allow_extras();
  if (argc > 1) refuse_unknown_command(argv[1], commands);
  for (const Command& command : commands)
    if (argc > 1 && command.parser->get_name() == argv[1]) refuse_repeated(*command.parser, argc, argv);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help_or_version) {
    return app.exit(help_or_version);
  }
  if (man || !shell.empty()) {
    ab::print_text(man ? ab::man_page(app) : ab::completion_script(app, shell));
    return 0;
  }
  for (const Command& command : commands) {
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
