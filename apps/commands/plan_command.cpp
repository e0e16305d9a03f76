// SPDX-License-Identifier: MIT
#include "apps/commands/commands.h"

#include "apps/report/plan_report.h"
#include "apps/report/terminal.h"
#include "engine/core/atomic_file.h"

namespace ab {

int run_plan(const std::vector<FlagValue>& flags, const std::string& config_file, const PlanCommand& command) {
  if (command.compare) {
    print_text(choice_text(plan_all_methods(flags, config_file, command.options)));
    return 0;
  }
  const TrainConfig config = resolve_train_config(flags, config_file, ConfigUse::plan);
  const std::string out = command.out.empty() ? "" : out_file(command.out, kPlanFile, {command.options.factors_from});
  const RunPlan plan = plan_run(config, command.options);
  if (!out.empty()) write_file_atomically(out, plan_json(plan));
  print_text(plan_text(plan));
  if (command.options.step_milliseconds > 0)
    print_text(bucket_note(plan, plan_in_best_bucket(config, command.options)));
  return 0;
}

}  // namespace ab
