#pragma once
// SPDX-License-Identifier: MIT
//
// The setting node_size of methods that exchange more inside a node than between nodes.

#include "apps/settings/train_config.h"
#include "engine/sync/node_layout.h"

namespace ab {

/// Ranks of a node. `node_size` 0: as --ranks-per-node says, but never more than there are ranks; where that says nothing,
/// every rank is a node.
NodeLayout node_layout(const TrainConfig& config, int node_size, int world_size);
/// Throws Error(config) when there are fewer ranks than `method` is told that a node has.
void check_node_size(const char* method, int node_size, int world_size);

}  // namespace ab
