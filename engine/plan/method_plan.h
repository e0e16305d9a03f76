#pragma once
// SPDX-License-Identifier: MIT
//
// What a method says about a run before it is trained.

#include <optional>

#include "engine/plan/memory_plan.h"
#include "engine/plan/traffic_plan.h"

namespace ab {

struct MethodPlan {
  TrafficPlan traffic;                          ///< the most that can be, where training decides how much it is
  std::optional<TrafficPlan> least{};           ///< the least, there
  std::vector<std::string> phases;              ///< its own, as in the ledger, in the order of a run
  std::map<std::string, std::int64_t> times{};  ///< how often each phase that is no step takes place
  std::vector<MemoryRow> memory{};
  std::vector<LayerRank> cut_r{};    ///< of every weight that is cut on the way
  std::vector<LayerRank> final_r{};  ///< of the weights that the run leaves in factors
};

}  // namespace ab
