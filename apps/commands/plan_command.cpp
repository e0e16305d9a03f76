// SPDX-License-Identifier: MIT
#include "apps/commands/plan_command.h"

#include <filesystem>

#include "apps/report/plan_report.h"
#include "apps/report/terminal.h"
#include "engine/core/atomic_file.h"
#include "engine/core/check.h"

namespace ab {

int run_plan(const TrainConfig& config, const PlanCommand& command) {
  const std::string folder = std::filesystem::path(command.out).parent_path().string();
  AB_CHECK(folder.empty() || std::filesystem::is_directory(folder), "--out {} cannot be written: there is no folder {}",
           command.out, folder);
  const RunPlan plan = plan_run(config, command.options);
  if (!command.out.empty()) write_file_atomically(command.out, plan_json(plan));
  print_text(plan_text(plan));
  return 0;
}

}  // namespace ab
