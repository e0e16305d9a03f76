// SPDX-License-Identifier: MIT
#include "engine/sync/node_layout.h"

#include <numeric>

namespace ab {

std::vector<int> NodeLayout::members_of(int node) const {
  std::vector<int> members(static_cast<std::size_t>(size_of(node)));
  std::iota(members.begin(), members.end(), first_of(node));
  return members;
}

std::unique_ptr<Comm> split_nodes(Comm& world, const NodeLayout& layout) {
  AB_CHECK(layout.node_size >= 1 && layout.node_size <= world.size(), "nodes of {} ranks cannot be made of {}",
           layout.node_size, world.size());
  return world.split([layout](int rank) { return layout.node_of(rank); }, NodeLayout::kLabel);
}

}  // namespace ab
