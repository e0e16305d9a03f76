// SPDX-License-Identifier: MIT
#include "engine/comm/link_model.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace ab {
namespace {

double log2_rounds(int ranks) { return std::bit_width(static_cast<unsigned>(ranks - 1)); }

double time_of(const Link& link, double rounds, double bytes) {
  return rounds == 0 ? 0 : rounds * link.latency + bytes / link.bandwidth;
}

}  // namespace

double LinkModel::seconds(Collective what, const Route& route, std::int64_t calls, std::int64_t payload_bytes) const {
  if (route.ranks == 1 || calls == 0) return 0;
  const double p = route.ranks, m = route.nodes, payload = static_cast<double>(payload_bytes);
  const double sweeps = what == Collective::all_reduce ? 2 : 1;
  const double repeats = static_cast<double>(calls * segments(route, payload_bytes / calls));
  // What the card of a node and the port of a rank send.
  const double by_card = static_cast<double>(route.inter_parts) / (m * p) * payload;
  const double by_port = static_cast<double>(route.intra_parts) / (p * p) * payload;
  const double inside = route.nodes < route.ranks ? 1 : 0, across = route.nodes > 1 ? 1 : 0;
  switch (route.algorithm) {
    case AllReduce::two_level:
      return time_of(intra_node, 2 * repeats, by_port) + time_of(inter_node, 2 * repeats, by_card);
    case AllReduce::library:
    case AllReduce::ring: {
      const double rounds = sweeps * (p - 1) * repeats, bytes = sweeps * (p - 1) / p * payload;
      return std::max(time_of(inter_node, across * rounds, across * bytes),
                      time_of(intra_node, inside * rounds, inside * bytes));
    }
    case AllReduce::tree: {
      const double up_across = log2_rounds(route.nodes), up_inside = log2_rounds(route.ranks) - up_across;
      return time_of(inter_node, 2 * up_across * repeats, 2 * up_across * payload) +
             time_of(intra_node, 2 * up_inside * repeats, 2 * up_inside * payload);
    }
    case AllReduce::direct:
    case AllReduce::automatic: break;
  }
  const double rounds = (what == Collective::all_reduce || what == Collective::broadcast ? 2 : 1) * repeats;
  return std::max(time_of(inter_node, across * rounds, across * by_card),
                  time_of(intra_node, inside * rounds, inside * by_port));
}

AllReduce LinkModel::fastest(const Layout& layout, std::int64_t payload_bytes) const {
  AllReduce best = AllReduce::direct;
  double shortest = HUGE_VAL;
  for (const AllReduce algorithm : {AllReduce::direct, AllReduce::two_level, AllReduce::ring, AllReduce::tree}) {
    const double time =
        seconds(Collective::all_reduce, route_of(Collective::all_reduce, algorithm, layout), 1, payload_bytes);
    if (time < shortest) shortest = time, best = algorithm;
  }
  return best;
}

}  // namespace ab
