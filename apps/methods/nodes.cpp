// SPDX-License-Identifier: MIT
#include "apps/methods/nodes.h"

#include "engine/core/check.h"

namespace ab {

NodeLayout node_layout(const TrainConfig& config, int node_size, int world_size) {
  if (node_size == 0) node_size = std::clamp(config.ranks_per_node, 1, world_size);
  return {world_size, node_size};
}

void check_node_size(const char* method, int node_size, int world_size) {
  AB_CHECK(node_size <= world_size, "--{}.node-size {} needs as many ranks, but there {} {}", method, node_size,
           world_size == 1 ? "is" : "are", world_size);
}

}  // namespace ab
