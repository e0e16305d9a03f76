// SPDX-License-Identifier: MIT
//
// HiTopKComm (arXiv 2010.10458; engine/sync/hitopk.h).
#include "engine/sync/hitopk.h"

#include <numeric>

#include "apps/methods/compressed.h"

namespace ab {
namespace {

struct HiTopkSettings : HiTopkOptions {
  int node_size = 0;  ///< ranks of a node; 0: node_ranks()

  bool operator==(const HiTopkSettings&) const = default;
};

void declare(std::vector<Setting>& settings) {
  auto s = method_section<HiTopkSettings>(settings, HiTopkStrategy::kName, "HiTopKComm (method hitopk)");
  s.number("density", &HiTopkSettings::density, 0, 1, "share of its slice that a rank sends to other nodes").above_low =
      true;
  s.number("rounds", &HiTopkSettings::rounds, 1, 64, "rounds of the search for the threshold");
  s.number("node_size", &HiTopkSettings::node_size, 0, 65536,
           "neighbouring ranks that exchange whole gradients; 0: --ranks-per-node if all nodes are full and there are "
           "several, or else 1");
  declare_dense_steps(s);
}

int node_ranks(const TrainConfig& config, int world_size) {
  const int asked = config.method_options.of<HiTopkSettings>().node_size, per_node = config.ranks_per_node;
  if (asked > 0) return asked;
  return per_node > 0 && per_node < world_size && world_size % per_node == 0 ? per_node : 1;
}

void check(const TrainConfig& config, Layer&, int world_size) {
  const int node = node_ranks(config, world_size), per_node = config.ranks_per_node;
  AB_CHECK(world_size % node == 0, "--hitopk.node-size {}: {} ranks are no whole nodes of {}", node, world_size, node);
  AB_CHECK(node == 1 || per_node == 0 || node == per_node,
           "--hitopk.node-size {} is not --ranks-per-node {}; leave one of them out", node, per_node);
}

std::unique_ptr<SyncStrategy> average(const TrainConfig& config, Replica replica, Comm& world,
                                      const LrSchedule& schedule) {
  const auto& options = config.method_options.of<HiTopkSettings>();
  return std::make_unique<HiTopkStrategy>(std::move(replica), world, node_ranks(config, world.size()), options,
                                          compression_start(config, options.dense_steps, schedule));
}

}  // namespace

Method hitopk_method() {
  return {.name = HiTopkStrategy::kName, .declare = declare, .check = check, .average = average};
}

}  // namespace ab
