#pragma once
// SPDX-License-Identifier: MIT
//
// The cost of a step of AR-Topk, by the model of its paper (Tyagi & Swany, IEEE BigData 2023, arXiv 2312.02493, Table I and
// eq. 4). With N ranks, latency alpha, beta seconds a byte, log = log2 (not rounded up) and M bytes,
//   ring all-reduce    2 (N-1) alpha + 2 (N-1)/N M beta
//   tree all-reduce    2 log N alpha + 2 log N M beta
//   broadcast          log N alpha + log N M beta
//   all-gather         log N alpha + (N-1) M beta            M of each rank
// These are not the times of our transport (engine/comm/network.h), which moves a broadcast and an all-gather in
// fewer rounds: they are what the method switches by.

#include <cstdint>

#include "engine/comm/network.h"

namespace ab {

double ring_seconds(int ranks, double bytes, const Link& link);
double tree_seconds(int ranks, double bytes, const Link& link);
double broadcast_seconds(int ranks, double bytes, const Link& link);
double gather_seconds(int ranks, double bytes, const Link& link);

/// How the selected elements of a step travel.
enum class ArtopkWay : std::uint8_t {
  ring,    ///< one rank's indices by broadcast, values by a ring all-reduce
  tree,    ///< the same, by a tree
  gather,  ///< every rank's own indices and values by an all-gather
};
constexpr ArtopkWay kArtopkWays[] = {ArtopkWay::ring, ArtopkWay::tree, ArtopkWay::gather};
const char* name_of(ArtopkWay way);

/// The bytes that a step sends of its k elements.
struct ArtopkPayload {
  double index_bytes = 0;     ///< of k indices
  double summed_bytes = 0;    ///< of k values in an all-reduce
  double gathered_bytes = 0;  ///< of k indices and values in an all-gather
};
/// 32-bit indices; values are of 32 bits in an all-gather, and of `wire_bytes` each in an all-reduce.
ArtopkPayload artopk_payload(std::int64_t k, std::int64_t wire_bytes = 4);

double artopk_seconds(ArtopkWay way, int ranks, const ArtopkPayload& payload, const Link& link);
/// The shortest; of equal ones the first.
ArtopkWay fastest_way(int ranks, const ArtopkPayload& payload, const Link& link);

/// The link by which ring all-reduces of these sizes take these times; at least two ranks, large_bytes > small_bytes.
/// Never better than without latency or 10 TB/s: measured times may contradict each other.
Link link_of_ring(int ranks, double small_bytes, double small_seconds, double large_bytes, double large_seconds);
/// The one that a group's messages take: the one between nodes, if they are on several.
const Link& link_of_group(const Layout& group, const LinkModel& links);

}  // namespace ab
