// SPDX-License-Identifier: MIT
#include "apps/commands/commands.h"

#include <CLI/CLI.hpp>

#include "apps/report/plan_report.h"
#include "apps/report/terminal.h"
#include "engine/core/atomic_file.h"
#include "engine/core/say.h"

namespace ab {
namespace {

struct PlanFlags {
  std::string config_file, out;
  PlanOptions options{};
  bool compare = false;
};

void warn_of_idle_network(const TrainConfig& config, const RunPlan& plan) {
  if (!config.network.empty() && config.ranks_per_node == 0 && plan.summary.world_size > 1)
    say(stderr,
        "warning: --network is between nodes, and this plan has one; say how many ranks a node has with "
        "--ranks-per-node\n");
}

void warn_of_images_unread(const TrainConfig& config, const PlanOptions& options) {
  if (config.data_dir.empty() || !find_dataset(config.dataset).decodes) return;
  if (options.classes > 0 && config.train_samples > 0) return;
  const DataShape shape = data_shape(config, options.classes);
  say(stderr,
      "warning: a plan reads no --data-dir, and takes {} images to train on, {} others and {} classes; --train-samples, "
      "--val-samples and --classes tell it yours\n",
      shape.train, shape.test, shape.classes);
}

int run_plan(const std::vector<FlagValue>& flags, PlanFlags command) {
  const auto resolve = [&] { return resolve_train_config(flags, command.config_file, ConfigUse::plan); };
  if (command.compare) {
    const bool asks = command.options.step_milliseconds == kAutoStep;
    const std::string about_step = asks ? settle_step(resolve(), command.options) : "";
    const std::vector<MethodPlan> plans = plan_all_methods(flags, command.config_file, command.options);
    warn_of_idle_network(plans.front().best.config, plans.front().best.plan);
    warn_of_images_unread(plans.front().best.config, command.options);
    print_text(choice_text(plans) + about_step);
    return 0;
  }
  const TrainConfig asked = resolve();
  const std::string about_step = settle_step(asked, command.options);
  const TrainConfig config = settle_bucket(asked, command.options);
  const std::string out = command.out.empty() ? "" : out_file(command.out, kPlanFile, {command.options.factors_from});
  const RunPlan plan = plan_run(config, command.options);
  if (!out.empty()) write_file_atomically(out, plan_json(plan));
  warn_of_idle_network(config, plan);
  warn_of_lone_ranks(config, plan.summary.world_size);
  warn_of_images_unread(config, command.options);
  print_text(plan_text(plan) + about_step);
  if (asked.bucket_mb == kAutoBucket)
    print_text(fmt::format("\n--bucket-mb auto takes {}{}.\n", flags_text(bucket_flags(config)),
                           plan.step_seconds > 0 ? "" : ", for steps that compute as long as they communicate"));
  // A dozen plans more, so for readers alone who have not chosen.
  if (plan.step_seconds > 0 && config.bucket_mb == 0 && out.empty())
    print_text(bucket_note(plan, plan_in_best_bucket(config, command.options)));
  return 0;
}

void add_plan_flags(CLI::App* parser, PlanFlags& plan) {
  PlanOptions& options = plan.options;
  parser->option_defaults()->group("Plan");
  parser->add_option("--classes", options.classes, "outputs of the model; as the data set has when not given")
      ->check(CLI::Range(2, 1000000))
      ->type_name("INT");
  CLI::Option* ratio = parser->add_option("--ratio", options.ratio, "keep this share of all singular values")
                           ->check(within(1e-6, 1))
                           ->type_name("NUM");
  CLI::Option* factors = add_path(parser, "--factors-from", options.factors_from,
                                  "take the ranks r of a trained run: its folder or summary.json")
                             ->excludes(ratio)
                             ->type_name("PATH");
  CLI::Option* decisions = add_path(parser, "--decisions-from", options.decisions_from,
                                    "take what a trained run decided on the way (methods daso and artopk): its folder")
                               ->type_name("PATH");
  parser
      ->add_option(
          "--step-ms", options.step_milliseconds,
          "computing of one step; of --factors-from's run when not given; auto: of the run of --factors-from or "
          "--decisions-from, else of an H200 at 30 % of its peak in 16 bits")
      ->transform(CLI::Validator(
          [](std::string& text) {
            if (text != kAuto) return within(0, 1e9)(text);
            text = fmt::format("{}", kAutoStep);
            return std::string();
          },
          ""))
      ->type_name("NUM");
  CLI::Option* out = add_path(parser, "--out", plan.out, "also write the plan as JSON")->type_name("FILE");
  CLI::Option* compare =
      parser->add_flag("--compare", plan.compare, "plan by every method and print a table; needs --step-ms");
  for (CLI::Option* other : {ratio, factors, decisions, out}) compare->excludes(other);
}

}  // namespace

Command plan_command(CLI::App& app, const HelpScope& scope) {
  CLI::App* parser = app.add_subcommand("plan", "bytes, memory and waiting of a run, before it is trained");
  const auto flags = std::make_shared<PlanFlags>();
  add_config_file(parser, flags->config_file);
  const GivenSettings given = add_settings(parser, scope, {"out", "overwrite", "resume", "resume_step"});
  add_plan_flags(parser, *flags);
  return {parser, [given, flags] { return run_plan(given(), *flags); }};
}

}  // namespace ab
