#pragma once
// SPDX-License-Identifier: MIT
//
// How long a collective takes, by the alpha-beta model (Hockney 1994; Thakur, Rabenseifner & Gropp 2005). Every node has
// one network card and every rank a port inside its node; each sends and receives at its bandwidth beta, and a message
// arrives alpha after it has been sent. With k rounds (route.h), of which the ring and the tree take each as long as its
// slowest link,
//   direct, two-level   seconds = k alpha + bytes of a card or port / beta, inside the nodes and across them
//   ring                k (alpha + payload/p / beta)
//   tree                k (alpha + payload / beta)
// Large payloads take k rounds for each of their segments. Collectives that share a card are not told apart.

#include <cstdint>

#include "engine/comm/route.h"

namespace ab {

struct Link {
  double latency;    ///< alpha, seconds, one way
  double bandwidth;  ///< beta, bytes per second in each direction
  bool operator==(const Link&) const = default;
};

struct LinkModel {
  Link inter_node{5e-6, 25e9};   ///< of a node: 200 Gb/s
  Link intra_node{2e-6, 300e9};  ///< of a rank

  /// `calls` collectives of equal size, with payload_bytes in all.
  double seconds(Collective what, const Route& route, std::int64_t calls, std::int64_t payload_bytes) const;
  /// The algorithm that takes the shortest time for an all-reduce of payload_bytes.
  AllReduce fastest(const Layout& layout, std::int64_t payload_bytes) const;

  bool operator==(const LinkModel&) const = default;
};

}  // namespace ab
