#pragma once
// SPDX-License-Identifier: MIT
//
// How long a collective takes, by the alpha-beta model (Hockney 1994) of ring algorithms (Patarasu & Yuan
// 2009):
//   seconds = k · alpha + wire / beta      k = 2 (p-1) steps of an all-reduce, p-1 of the others
// with the wire bytes of ledger.h. A ring is as slow as its slowest link: alpha and beta are those between
// nodes when any of its links crosses nodes, else those within a node. Rings that share a link are not told
// apart.

#include <cstdint>

#include "engine/comm/ledger.h"

namespace ab {

struct Link {
  double latency;    ///< alpha, seconds
  double bandwidth;  ///< beta, bytes per second and rank, in one direction
};

struct LinkModel {
  Link inter_node{5e-6, 25e9};  ///< 200 Gb/s
  Link intra_node{2e-6, 300e9};

  /// `calls` collectives over p ranks, `crossing_links` of the ring's links between nodes, with payload_bytes
  /// in all.
  double seconds(Collective what, int ranks, int crossing_links, std::int64_t calls,
                 std::int64_t payload_bytes) const;
};

}  // namespace ab
