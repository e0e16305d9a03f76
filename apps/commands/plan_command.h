#pragma once
// SPDX-License-Identifier: MIT

#include "apps/plan/plan.h"

namespace ab {

/// The flags of abtrain plan beside the settings of a run.
struct PlanCommand {
  PlanOptions options;
  std::string out;  ///< JSON file; empty: none
};

/// abtrain plan: prints what a run will send, hold and wait for. Returns the exit code; throws ab::Error.
int run_plan(const TrainConfig& config, const PlanCommand& command);

}  // namespace ab
