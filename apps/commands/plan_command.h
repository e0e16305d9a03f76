#pragma once
// SPDX-License-Identifier: MIT

#include "apps/plan/plan.h"

namespace ab {

/// The flags of abtrain plan beside the settings of a run, in the units of the command line.
struct PlanCommand {
  PlanOptions options;
  double inter_gigabytes = 25, inter_microseconds = 5;   ///< bandwidth per second and latency between nodes
  double intra_gigabytes = 300, intra_microseconds = 2;  ///< the same within a node
  std::string out;                                       ///< JSON file; empty: none
};

/// abtrain plan: prints what a run will send, hold and wait for. Returns the exit code; throws ab::Error.
int run_plan(const TrainConfig& config, const PlanCommand& command);

}  // namespace ab
