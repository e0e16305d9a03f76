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

/// As --ranks-per-node says, if there are several nodes, or else every rank for itself.
int node_ranks(const TrainConfig& config, int world_size) {
  const int node = config.ranks_per_node;
  return node > 0 && node < world_size ? node : 1;
}

void check(const TrainConfig& config, Layer&, int world_size) {
  AB_CHECK(world_size % node_ranks(config, world_size) == 0,
           "method hitopk needs nodes of equal size: {} ranks cannot be divided by --ranks-per-node {}", world_size,
           config.ranks_per_node);
}

std::unique_ptr<SyncStrategy> average(const TrainConfig& config, Replica replica, Comm& world,
                                      const LrSchedule& schedule) {
  const auto& options = config.of<HiTopkOptions>();
  return std::make_unique<HiTopkStrategy>(std::move(replica), world, node_ranks(config, world.size()), options,
                                          compression_start(config, schedule));
}

}  // namespace

Method hitopk_method() {
  return {.name = HiTopkStrategy::kName, .declare = declare, .check = check, .average = average, .dense_start = true};
}

}  // namespace ab
