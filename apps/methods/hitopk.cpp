// SPDX-License-Identifier: MIT
//
// HiTopKComm (arXiv 2010.10458; engine/sync/hitopk.h).
#include "engine/sync/hitopk.h"

#include <numeric>

#include "apps/methods/compressed.h"

namespace ab {
namespace {

void declare(std::vector<Setting>& settings) {
  auto s = method_section<HiTopkOptions>(settings, HiTopkStrategy::kName, "HiTopKComm (method hitopk)");
  s.number("density", &HiTopkOptions::density, 0, 1, "share of its slice that a rank sends to other nodes").above_low =
      true;
  s.number("rounds", &HiTopkOptions::rounds, 1, 64, "rounds of the search for the threshold");
}

/// Whole nodes as --ranks-per-node says, if there are several, or else every rank for itself.
int node_ranks(const TrainConfig& config, int world_size) {
  const int node = config.ranks_per_node;
  return node > 0 && node < world_size && world_size % node == 0 ? node : 1;
}

std::unique_ptr<SyncStrategy> average(const TrainConfig& config, Replica replica, Comm& world,
                                      const LrSchedule& schedule) {
  const auto& options = config.of<HiTopkOptions>();
  return std::make_unique<HiTopkStrategy>(std::move(replica), world, node_ranks(config, world.size()), options,
                                          compression_start(config, schedule));
}

}  // namespace

Method hitopk_method() {
  return {.name = HiTopkStrategy::kName, .declare = declare, .average = average, .dense_start = true};
}

}  // namespace ab
