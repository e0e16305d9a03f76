// SPDX-License-Identifier: MIT
#include "engine/comm/route.h"

#include <algorithm>
#include <map>

#include "engine/core/check.h"

namespace ab {
namespace {

constexpr std::int64_t kWindowBytes = std::int64_t{16} << 20;

/// Edges of the binomial tree (message_rounds.cpp) that join two nodes.
std::int64_t crossing_edges(const Layout& layout) {
  std::int64_t crossing = 0;
  for (int distance = 1; distance < layout.ranks(); distance *= 2)
    for (int r = 0; r + distance < layout.ranks(); r += 2 * distance)
      crossing += layout.node_of[static_cast<std::size_t>(r)] != layout.node_of[static_cast<std::size_t>(r + distance)];
  return crossing;
}

bool has_two_levels(const Layout& layout) {
  return layout.even() && layout.nodes() > 1 && layout.nodes() < layout.ranks();
}

}  // namespace

const char* name_of(Collective collective) {
  switch (collective) {
    case Collective::barrier: return "barrier";
    case Collective::broadcast: return "broadcast";
    case Collective::all_reduce: return "all_reduce";
    case Collective::reduce_scatter: return "reduce_scatter";
    case Collective::all_gather: return "all_gather";
  }
  return "?";
}

const char* name_of(AllReduce algorithm) {
  switch (algorithm) {
    case AllReduce::direct: return "direct";
    case AllReduce::ring: return "ring";
    case AllReduce::tree: return "tree";
    case AllReduce::two_level: return "two-level";
    case AllReduce::automatic: return "auto";
    case AllReduce::library: return "library";
  }
  return "?";
}

Layout::Layout(const std::vector<int>& nodes) : node_of(nodes) {
  std::map<int, int> index;
  for (int member = 0; int& node : node_of) {
    node = index.try_emplace(node, static_cast<int>(index.size())).first->second;
    members.resize(index.size());
    members[static_cast<std::size_t>(node)].push_back(member++);
  }
  for (std::size_t i = 0; i < node_of.size(); ++i) crossing_links += node_of[i] != node_of[(i + 1) % node_of.size()];
}

bool Layout::even() const {
  return std::ranges::all_of(members, [this](const auto& node) { return node.size() == members[0].size(); });
}

Route route_of(Collective what, AllReduce algorithm, const Layout& layout) {
  AB_ASSERT(algorithm != AllReduce::automatic);
  const std::int64_t p = layout.ranks(), m = layout.nodes(), n = p / m;
  Route route{algorithm, layout.ranks(), layout.nodes(), layout.crossing_links};
  const bool reduces_all = what == Collective::all_reduce, library = algorithm == AllReduce::library;
  if ((!reduces_all && !library) || (algorithm == AllReduce::two_level && !has_two_levels(layout)))
    route.algorithm = AllReduce::direct;
  if (what == Collective::barrier || p == 1) return route;
  std::int64_t pairs_inside = -p;  // ordered
  for (const auto& node : layout.members) pairs_inside += static_cast<std::int64_t>(node.size() * node.size());
  const std::int64_t sweeps = reduces_all ? 2 : 1;  // over all parts
  switch (route.algorithm) {
    case AllReduce::direct:
      route.intra_parts = sweeps * pairs_inside;
      route.inter_parts = sweeps * (p * (p - 1) - pairs_inside);
      break;
    case AllReduce::library:
    case AllReduce::ring:
      route.inter_parts = sweeps * (p - 1) * layout.crossing_links;
      route.intra_parts = sweeps * (p - 1) * (p - layout.crossing_links);
      break;
    case AllReduce::tree:
      route.inter_parts = 2 * p * crossing_edges(layout);
      route.intra_parts = 2 * p * (p - 1) - route.inter_parts;
      break;
    case AllReduce::two_level:
      route.intra_parts = 2 * p * (n - 1) * m;
      route.inter_parts = 2 * p * (m - 1);
      break;
    case AllReduce::automatic: break;
  }
  return route;
}

std::int64_t segment_bytes(const Route& route) {
  // Around a ring a rank receives one part at a time.
  return route.algorithm == AllReduce::ring ? kWindowBytes * route.ranks : kWindowBytes;
}

std::int64_t segments(const Route& route, std::int64_t bytes) {
  const std::int64_t window = segment_bytes(route);
  return std::max<std::int64_t>(1, (bytes + window - 1) / window);
}

}  // namespace ab
