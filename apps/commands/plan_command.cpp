// SPDX-License-Identifier: MIT
#include "apps/commands/commands.h"

#include "apps/report/plan_report.h"
#include "apps/report/terminal.h"
#include "engine/core/atomic_file.h"

namespace ab {

int run_plan(const TrainConfig& config, const PlanCommand& command) {
  const std::string out = command.out.empty() ? "" : out_file(command.out, kPlanFile, {command.options.factors_from});
  const RunPlan plan = plan_run(config, command.options);
  if (!out.empty()) write_file_atomically(out, plan_json(plan));
  print_text(plan_text(plan));
  return 0;
}

}  // namespace ab
