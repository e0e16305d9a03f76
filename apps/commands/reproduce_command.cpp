// SPDX-License-Identifier: MIT
#include "apps/commands/commands.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>

#include "apps/paper/experiments.h"
#include "apps/paper/paper_traffic.h"
#include "apps/report/plan_report.h"
#include "apps/report/terminal.h"
#include "apps/settings/setting.h"
#include "apps/train/run_folder.h"
#include "engine/comm/launcher.h"
#include "engine/core/atomic_file.h"
#include "engine/core/check.h"
#include "engine/core/path.h"
#include "engine/core/say.h"

namespace ab {
namespace {

struct ReproduceFlags {
  std::string experiment;  ///< a name of experiments(), or "all"; empty: list them
  bool dry_run = false, verbose = false, overwrite = false;
  std::string out;
  Adjustments adjustments{};
  RankChoice ranks{};
};

constexpr const char* kReportFile = "reproduce.md";
constexpr const char* kPageFile = "report.html";
constexpr const char* kAll = "all";

int list_experiments() {
  TextTable table({"experiment", "training"}, {1});
  for (const Experiment& experiment : experiments()) table.add({experiment.name, experiment.title});
  table.add({kAll, "plans of all of the paper's (with --dry-run)"});
  print_text(table.str());
  return 0;
}

/// Prints `shown`, and writes `report` to the folder.
void publish(const std::string& report, const std::string& folder, const std::string& shown) {
  std::error_code problem;
  if (!folder.empty()) std::filesystem::create_directories(folder, problem);
  AB_CHECK(!problem, "--out {} cannot be created: {}", folder, problem.message());
  if (!folder.empty()) write_file_atomically(out_file(in_folder(folder, kReportFile), kPaperTable), report);
  print_text(shown);
}

/// A result that cannot be written is refused before anything is planned or trained.
void check_result_in(const std::string& folder, const char* file, const OutKind& kind) {
  std::error_code ignored;
  const std::string result = in_folder(folder, file);
  if (!folder.empty() && std::filesystem::exists(result, ignored)) out_file(result, kind);
}

/// Trains into FOLDER/METHOD, unless that is done already; `runs` as of run_train(). Returns the exit code.
int train_method(TrainConfig config, const std::string& folder, bool overwrite, int runs) {
  config.out = in_folder(folder, config.method.c_str());
  config.overwrite = overwrite;
  if (!overwrite) config.resume = "auto";
  say(stdout, "\n{}\n", config.out);
  return run_train(config, runs);
}

/// One experiment beside the paper.
struct Reproduction {
  const Experiment* experiment = nullptr;
  std::vector<std::string> changes{};  ///< settings that were scaled or given otherwise
  std::vector<PlannedTraffic> planned{};
  struct Trained {
    Summary ab, dense;
  };
  std::optional<Trained> trained{};
};

std::string ratio(double compression) { return fmt::format("{:.2f} : 1", compression); }

std::string points(double difference) { return fmt::format("{:+.2f} points", 100 * difference); }

constexpr const char* kReportNotes =
    R"(Compression: numbers that the dense model stores : those of the model that the run leaves. Saved: against the same run
in dense data-parallel training with float32 gradients, bytes on the wire under ring algorithms, mean over ranks.
Without validations: groups rejoin for a validation, which the authors' release does not. Low-rank steps alone: bytes
of a low-rank step against those of a dense one. r/n: of every weight that is split; measured: of a run's last split,
taken for all of them (in brackets: the median over weights).
)";
constexpr const char* kTrafficNote =
    R"(The published saving is the mean over all ImageNet runs; what it counts is not known, so it stands beside each way
to count.
)";
constexpr const char* kTop1Note = "The published top-1 gain is ResNet-50's; at which batch size is not known.\n";

/// Published, planned and trained figures in one table, in Markdown.
std::string reproduce_report(const Reproduction& r) {
  const Experiment& experiment = *r.experiment;
  std::vector<std::string> headings{"", "published"};
  std::vector<TrafficFigures> columns;
  for (const PlannedTraffic& planned : r.planned) {
    headings.push_back("planned, r/n " + rank_text(planned));
    columns.push_back(planned.figures);
  }
  if (r.trained) {
    headings.push_back("trained");
    columns.push_back(traffic_figures(r.trained->ab, r.trained->dense));
  }
  TextTable table(headings);
  const auto add = [&](const std::string& name, const std::string& published, const auto& cell) {
    std::vector<std::string> cells{name, published};
    for (const TrafficFigures& figures : columns) cells.push_back(cell(figures));
    table.add(std::move(cells));
  };
  const auto add_trained = [&](const char* name, const std::string& published, const std::string& trained) {
    std::vector<std::string> cells{name, published};
    cells.insert(cells.end(), r.planned.size(), "-");  // no plan can tell
    cells.push_back(trained);
    table.add(std::move(cells));
  };
  add("compression", experiment.has_compression ? ratio(kPublishedCompression) : "-",
      [](const TrafficFigures& f) { return ratio(f.compression); });
  const double dense = r.trained ? r.trained->dense.final_val_top1 : 0,
               ab = r.trained ? r.trained->ab.final_val_top1 : 0;
  if (r.trained) add_trained("top-1, dense", "-", percent(dense));
  if (r.trained) add_trained("top-1, AB", "-", percent(ab));
  add_trained("top-1, AB over dense", experiment.has_top1_gain ? points(kPublishedTop1Gain) : "-", points(ab - dense));
  add("low-rank steps", "-", [](const TrafficFigures& f) { return percent(f.low_rank_steps); });
  for (const TrafficDefinition& definition : kTrafficDefinitions)
    add(fmt::format("saved, {}", definition.name), experiment.has_traffic ? percent(kPublishedTraffic) : "-",
        [&](const TrafficFigures& f) { return percent(f.*definition.saved); });
  std::string text = fmt::format("# {}\n\n{}.\n", experiment.name, experiment.title);
  if (!r.changes.empty()) text += fmt::format("Changed from the paper's experiment: {}.\n", fmt::join(r.changes, ", "));
  text += fmt::format("\n{}\n{}", table.markdown(), kReportNotes);
  if (experiment.has_traffic) text += kTrafficNote;
  if (experiment.has_top1_gain) text += kTop1Note;
  return text;
}

void check_ranks_are_threads(const char* methods) {
  AB_CHECK(find_launcher() == Launcher::none,
           "reproduce trains with threads as ranks; under mpirun, srun or torchrun use abtrain train --config with {}",
           methods);
}

/// An experiment of ours: its methods side by side.
int compare_methods(const Experiment& experiment, const ReproduceFlags& command) {
  AB_CHECK(command.adjustments.scale == 1 && command.ranks.ratio == 0 && command.ranks.runs.empty(),
           "--scale, --ratio and --factors-from are of the paper's experiments; leave them out");
  AB_CHECK(!command.dry_run || command.out.empty(), "--dry-run of {} writes nothing; leave --out out", experiment.name);
  const std::vector<std::string> methods{kBaseline, "ab", "late-cut"};
  const std::string folder = command.out.empty() ? "runs/reproduce/" + experiment.name : command.out;
  std::vector<TrainConfig> with_own, configs;  // with the flags of the method's own table, and with all that count
  for (const std::string& method : methods) {
    Adjustments own{.flags = {{"method", method}}};
    for (const FlagValue& flag : command.adjustments.flags)
      if (find_setting(flag.first)->table() == method) own.flags.push_back(flag);
    with_own.push_back(experiment_config(experiment, own, ConfigUse::plan));
  }
  for (const TrainConfig& of_method : with_own) {
    const std::string& method = of_method.method;
    Adjustments adjustments{.flags = {{"method", method}}};
    for (const FlagValue& flag : command.adjustments.flags) {
      const auto counts = [&, &setting = *find_setting(flag.first)](const TrainConfig& config) {
        return setting.counts_for(config.method) && concerns(setting, config);
      };
      // One that counts nowhere goes to all: they refuse it.
      if (counts(of_method) || std::ranges::none_of(with_own, counts)) adjustments.flags.push_back(flag);
    }
    // --precision auto is that of the run that goes on, and one for all.
    if (!command.dry_run) adjustments.flags.emplace_back("out", in_folder(folder, method.c_str()));
    if (!command.dry_run && !command.overwrite) adjustments.flags.emplace_back("resume", "auto");
    if (!configs.empty()) adjustments.flags.emplace_back("precision", configs[0].precision);
    configs.push_back(experiment_config(experiment, adjustments, command.dry_run ? ConfigUse::plan : ConfigUse::train));
  }
  if (command.dry_run) {
    for (const TrainConfig& config : configs) print_text(plan_text(plan_run(config, {})) + "\n");
    return 0;
  }
  check_ranks_are_threads("--method dense, ab and late-cut, and compare the runs");
  check_result_in(folder, kPageFile, kReportPage);
  std::vector<std::string> runs;
  for (const TrainConfig& config : configs) {
    const int left = runs.empty() ? static_cast<int>(configs.size()) : 1;
    if (const int code = train_method(config, folder, command.overwrite, left); code != 0) return code;
    runs.push_back(in_folder(folder, config.method.c_str()));
  }
  say_text(stdout, "\n");
  return run_compare(runs, in_folder(folder, kPageFile));
}

int run_reproduce(const ReproduceFlags& command) {
  if (command.experiment.empty()) return list_experiments();
  if (command.experiment == kAll) {
    AB_CHECK(command.dry_run, "reproduce all only plans; add --dry-run, or name one experiment to train");
    check_result_in(command.out, kReportFile, kPaperTable);
    const PaperTraffic traffic = plan_paper_traffic(command.adjustments, command.ranks);
    publish(traffic.report, command.out,
            command.verbose ? traffic.report : traffic.result + "--verbose shows each experiment.\n");
    return 0;
  }
  AB_CHECK(!command.verbose, "--verbose is of reproduce all alone");
  Reproduction result;
  result.experiment = &find_experiment(command.experiment);
  if (!result.experiment->is_of_paper) return compare_methods(*result.experiment, command);
  const TrainConfig config =
      experiment_config(*result.experiment, command.adjustments, command.dry_run ? ConfigUse::plan : ConfigUse::train);
  result.changes = differing_settings(experiment_config(*result.experiment), config);
  check_rank_choice(command.ranks, {config});
  RankChoice ranks = command.ranks;
  std::string folder = command.out;
  if (!command.dry_run) {
    check_ranks_are_threads(
        "--method dense and --method ab, into DIR/dense and DIR/ab, then abtrain reproduce --out DIR for the table");
    if (folder.empty()) folder = "runs/reproduce/" + result.experiment->name;
    check_result_in(folder, kReportFile, kPaperTable);
    TrainConfig dense = config;
    dense.method = kBaseline, dense.preset = kOurPreset, dense.comm_dtype = DType::float32;
    if (const int code = train_method(dense, folder, command.overwrite, 2); code != 0) return code;
    if (const int code = train_method(config, folder, command.overwrite, 1); code != 0) return code;
    const std::string ab_run = in_folder(folder, "ab");
    result.trained = {read_run(ab_run).summary, read_run(in_folder(folder, "dense")).summary};
    if (ranks.ratio == 0 && ranks.runs.empty()) ranks.runs = {ab_run};
    say_text(stdout, "\n");
  }
  result.planned = plan_experiment(config, ranks);
  const std::string report = reproduce_report(result);
  publish(report, folder, report);
  return 0;
}

}  // namespace

Command reproduce_command(CLI::App& app, const HelpScope& scope) {
  CLI::App* parser = app.add_subcommand(
      "reproduce", "train or plan an experiment: the paper's beside its figures, or methods side by side");
  const auto flags = std::make_shared<ReproduceFlags>();
  parser->add_option("EXPERIMENT", flags->experiment, "its name, or all; without it they are listed");
  parser->add_flag("--dry-run", flags->dry_run, "only plan what would be sent; needs no data");
  parser->add_flag("--verbose", flags->verbose, "of all: every experiment at every rank fraction");
  parser
      ->add_option("--scale", flags->adjustments.scale,
                   "this share of images, ranks and steps, schedules in proportion; the model stays (default 1)")
      ->type_name("NUM");
  CLI::Option* ratio =
      parser
          ->add_option("--ratio", flags->ranks.ratio,
                       "plan with this share of all singular values kept; several shares when not given")
          ->check(within(1e-6, 1))
          ->type_name("NUM");
  parser
      ->add_option("--factors-from", flags->ranks.runs,
                   "plan with the ranks r of trained runs of the same model: folders or summary.json files")
      ->excludes(ratio)
      ->type_name("PATH")
      ->transform(expand_home);
  add_path(parser, "--out", flags->out,
           "folder of a run for each method and of the table, reproduce.md, or page, report.html "
           "(runs/reproduce/EXPERIMENT when not given); finished runs in it are kept")
      ->type_name("FOLDER");
  parser->add_flag("--overwrite", flags->overwrite, "train again what the folder already holds");
  const GivenSettings given =
      add_settings(parser, scope, {"out", "overwrite", "resume", "resume_step", "method", "preset"});
  return {parser, [given, flags] {
            flags->adjustments.flags = given();
            return run_reproduce(*flags);
          }};
}

}  // namespace ab
