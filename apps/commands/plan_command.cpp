// SPDX-License-Identifier: MIT
#include "apps/commands/commands.h"

#include "apps/report/plan_report.h"
#include "apps/report/terminal.h"
#include "engine/core/atomic_file.h"
#include "engine/core/say.h"

namespace ab {
namespace {

void warn_of_idle_network(const TrainConfig& config, const RunPlan& plan) {
  if (!config.network.empty() && config.ranks_per_node == 0 && plan.summary.world_size > 1)
    say(stderr,
        "warning: --network is between nodes, and this plan has one; say how many ranks a node has with "
        "--ranks-per-node\n");
}

}  // namespace

int run_plan(const std::vector<FlagValue>& flags, const std::string& config_file, PlanCommand command) {
  const auto resolve = [&] { return resolve_train_config(flags, config_file, ConfigUse::plan); };
  if (command.compare) {
    const bool asks = command.options.step_milliseconds == kAutoStep;
    const std::string about_step = asks ? settle_step(resolve(), command.options) : "";
    const std::vector<MethodPlan> plans = plan_all_methods(flags, config_file, command.options);
    warn_of_idle_network(plans.front().best.config, plans.front().best.plan);
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
  print_text(plan_text(plan) + about_step);
  if (asked.bucket_mb == kAutoBucket)
    print_text(fmt::format("\n--bucket-mb auto takes {}{}.\n", flags_text(bucket_flags(config)),
                           plan.step_seconds > 0 ? "" : ", for steps that compute as long as they communicate"));
  // A dozen plans more, so for readers alone who have not chosen.
  if (plan.step_seconds > 0 && config.bucket_mb == 0 && out.empty())
    print_text(bucket_note(plan, plan_in_best_bucket(config, command.options)));
  return 0;
}

}  // namespace ab
