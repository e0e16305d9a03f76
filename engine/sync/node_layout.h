#pragma once
// SPDX-License-Identifier: MIT
//
// Ranks that share a node, for methods that exchange more inside a node than between nodes: consecutive ranks fill one
// node after another, and the last node may have fewer.

#include <algorithm>
#include <cstdint>
#include <memory>

#include "engine/comm/comm.h"

namespace ab {

struct NodeLayout {
  static constexpr const char* kLabel = "node";  ///< of the communicator of a node in the ledger

  int ranks = 1;      ///< of the world
  int node_size = 1;  ///< ranks of a node

  int nodes() const { return (ranks + node_size - 1) / node_size; }
  int node_of(int rank) const { return rank / node_size; }
  int first_of(int node) const { return node * node_size; }
  int size_of(int node) const { return std::min(node_size, ranks - first_of(node)); }
};

/// The communicator of this rank's node. Collective over `world`, which must outlive it.
inline std::unique_ptr<Comm> split_nodes(Comm& world, const NodeLayout& layout) {
  AB_CHECK(layout.node_size >= 1 && layout.node_size <= world.size(), "nodes of {} ranks cannot be made of {}",
           layout.node_size, world.size());
  return world.split([layout](int rank) { return layout.node_of(rank); }, NodeLayout::kLabel);
}

}  // namespace ab
