// SPDX-License-Identifier: MIT
#include "engine/comm/route.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "engine/core/check.h"

namespace ab {
namespace {

constexpr std::int64_t kWindowBytes = std::int64_t{16} << 20;

/// Edges of the binomial tree that join two nodes.
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
  constexpr const char* kNames[] = {"barrier", "broadcast", "all_reduce", "reduce_scatter", "all_gather", "all_to_all"};
  return kNames[static_cast<int>(collective)];
}

const char* name_of(AllReduce algorithm) {
  constexpr const char* kNames[] = {"direct", "ring", "tree", "two-level", "auto", "library"};
  return kNames[static_cast<int>(algorithm)];
}

std::vector<int> first_ranks(int count) {
  std::vector<int> ranks(static_cast<std::size_t>(count));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
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
  const bool reduces_all = what == Collective::all_reduce;
  const bool library = algorithm == AllReduce::library && what != Collective::all_to_all;
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

namespace {

/// The others of a group of members, from the right-hand neighbour of `rank` on, so that they do not all turn to the first
/// at once.
std::vector<int> others(const std::vector<int>& members, int rank) {
  std::vector<int> order;
  const auto me = std::ranges::find(members, rank) - members.begin();
  const auto size = static_cast<std::ptrdiff_t>(members.size());
  for (std::ptrdiff_t i = 1; i < size; ++i) order.push_back(members[static_cast<std::size_t>((me + i) % size)]);
  return order;
}

/// Every member receives its own parts of all others and adds them up. `parts_of(member)` are those.
template <class PartsOf> Round reduce_scatter(const std::vector<int>& members, int rank, PartsOf parts_of) {
  Round round{.operands = members};
  const auto [mine_first, mine_last] = parts_of(rank);
  for (const int peer : others(members, rank)) {
    const auto [first, last] = parts_of(peer);
    round.sends.push_back({peer, first, last});
    round.receives.push_back({peer, mine_first, mine_last});
  }
  return round;
}

/// Every member hands its own parts to all others.
template <class PartsOf> Round all_gather(const std::vector<int>& members, int rank, PartsOf parts_of) {
  Round round;
  const auto [mine_first, mine_last] = parts_of(rank);
  for (const int peer : others(members, rank)) {
    const auto [first, last] = parts_of(peer);
    round.sends.push_back({peer, mine_first, mine_last});
    round.receives.push_back({peer, first, last});
  }
  return round;
}

std::pair<int, int> part_with_own_number(int member) { return {member, member + 1}; }

MessageRounds direct(Collective what, int ranks, int rank, int root) {
  const std::vector<int> everyone = first_ranks(ranks);
  MessageRounds all{.parts = ranks};
  if (what == Collective::all_to_all) {
    Round& swap = all.rounds.emplace_back();
    for (const int peer : others(everyone, rank)) {
      swap.sends.push_back({peer, peer, peer + 1});
      swap.receives.push_back({peer, peer, peer + 1});
    }
    return all;
  }
  if (what == Collective::all_reduce || what == Collective::reduce_scatter) {
    all.rounds.push_back(reduce_scatter(everyone, rank, part_with_own_number));
    all.rounds.back().completes_sum = true;
  }
  if (what == Collective::broadcast) {
    Round& spread = all.rounds.emplace_back();
    if (rank != root) spread.receives.push_back({root, rank, rank + 1});
    else
      for (const int peer : others(everyone, rank)) spread.sends.push_back({peer, peer, peer + 1});
  }
  if (what != Collective::reduce_scatter) all.rounds.push_back(all_gather(everyone, rank, part_with_own_number));
  if (what == Collective::broadcast) {  // the root has it all
    Round& gather = all.rounds.back();
    std::erase_if(gather.sends, [root](const Transfer& send) { return send.peer == root; });
    if (rank == root) gather.receives.clear();
  }
  return all;
}

/// Part c sets out from rank c+1 and has been through all ranks when it comes to rank c.
MessageRounds ring(int p, int rank) {
  MessageRounds all{.parts = p};
  const int right = (rank + 1) % p, left = (rank + p - 1) % p;
  const auto part = [p, rank](int offset) { return ((rank + offset) % p + p) % p; };
  for (int s = 0; s < p - 1; ++s) {
    const int sent = part(-1 - s), received = part(-2 - s);
    all.rounds.push_back({.sends = {{right, sent, sent + 1}},
                          .receives = {{left, received, received + 1}},
                          .operands = {left, rank},
                          .completes_sum = s == p - 2});
  }
  for (int s = 0; s < p - 1; ++s) {
    const int sent = part(-s), received = part(-1 - s);
    all.rounds.push_back({.sends = {{right, sent, sent + 1}}, .receives = {{left, received, received + 1}}});
  }
  return all;
}

MessageRounds tree(int p, int rank) {
  MessageRounds all;
  int height = 1;
  for (; height < p; height *= 2) {
    Round& up = all.rounds.emplace_back();
    if (rank % (2 * height) == height) up.sends.push_back({rank - height, 0, 1});
    if (rank % (2 * height) != 0 || rank + height >= p) continue;
    up.receives.push_back({rank + height, 0, 1});
    up.operands = {rank, rank + height};
    up.completes_sum = 2 * height >= p;
  }
  for (height /= 2; height >= 1; height /= 2) {
    Round& down = all.rounds.emplace_back();
    if (rank % (2 * height) == height) down.receives.push_back({rank - height, 0, 1});
    if (rank % (2 * height) == 0 && rank + height < p) down.sends.push_back({rank + height, 0, 1});
  }
  return all;
}

/// The slice of a node's i-th rank is parts [i m, (i+1) m), of which the rank at that place on node k takes the k-th.
MessageRounds two_level(const Layout& layout, int rank) {
  const int m = layout.nodes(), node = layout.node_of[static_cast<std::size_t>(rank)];
  const std::vector<int>& inside = layout.members[static_cast<std::size_t>(node)];
  const auto place_in = [](const std::vector<int>& members, int member) {
    return static_cast<int>(std::ranges::find(members, member) - members.begin());
  };
  const int place = place_in(inside, rank);
  std::vector<int> across;
  for (const auto& members : layout.members) across.push_back(members[static_cast<std::size_t>(place)]);
  const auto slice = [&](int member) {
    const int i = place_in(inside, member);
    return std::pair(i * m, (i + 1) * m);
  };
  const auto part = [&](int member) { return part_with_own_number(place * m + place_in(across, member)); };
  MessageRounds all{.parts = layout.ranks()};
  all.rounds.push_back(reduce_scatter(inside, rank, slice));
  all.rounds.push_back(reduce_scatter(across, rank, part));
  all.rounds.back().completes_sum = true;
  all.rounds.push_back(all_gather(across, rank, part));
  all.rounds.push_back(all_gather(inside, rank, slice));
  return all;
}

}  // namespace

MessageRounds message_rounds(Collective what, const Route& route, const Layout& layout, int rank, int root) {
  switch (route.algorithm) {
    case AllReduce::ring: return ring(layout.ranks(), rank);
    case AllReduce::tree: return tree(layout.ranks(), rank);
    case AllReduce::two_level: return two_level(layout, rank);
    case AllReduce::direct:
    case AllReduce::automatic:
    case AllReduce::library: break;
  }
  return direct(what, layout.ranks(), rank, root);
}

}  // namespace ab
