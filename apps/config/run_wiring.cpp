// SPDX-License-Identifier: MIT
#include "apps/config/run_wiring.h"

#include "engine/core/check.h"

namespace ab {

Wiring run_wiring(const TrainConfig& config) { return {config.all_reduce, parse_network(config.network)}; }

Wiring planned_wiring(const TrainConfig& config) {
  Wiring wiring = run_wiring(config);
  AB_CHECK(wiring.network.parts.size() <= 1, "a plan takes one network, and --network has {}",
           wiring.network.parts.size());
  if (config.device != "cpu" && config.transport != "threads") wiring.all_reduce = AllReduce::library;
  return wiring;
}

}  // namespace ab
