#pragma once
// SPDX-License-Identifier: MIT
//
// A network in figures and in words, and how long a collective takes over it, by the alpha-beta model (Hockney 1994; Thakur, Rabenseifner & Gropp 2005). Every node has
// one network card and every rank a port inside its node; each sends and receives at its bandwidth beta, and a message
// arrives alpha after it has been sent. With k rounds (route.h), of which the ring and the tree take each as long as its
// slowest link,
//   direct, two-level   seconds = k alpha + bytes of a card or port / beta, inside the nodes and across them
//   ring                k (alpha + payload/p / beta)
//   tree                k (alpha + payload / beta)
// Large payloads take k rounds for each of their segments. Collectives that share a card are not told apart.

#include <cstdint>
#include <string>
#include <vector>

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

// A network in words:
//   latency=4ms,bandwidth=20Gbps                         between nodes; inside them as it is
//   latency=50us,bandwidth=100Gbps,node-latency=2us,node-bandwidth=300GB/s
//   latency=1ms,bandwidth=25Gbps; from 500: bandwidth=1Gbps     another one after 500 updates
// Latencies are one way, in ns, us, ms or s. Bandwidths are those of a node's network card, in each direction, or of a
// rank inside its node: in kbps, Mbps, Gbps, Mbit/s or Gbit/s (bits), or in kB/s, MB/s or GB/s (bytes), all decimal.

struct NetworkShape {
  struct From {
    std::int64_t step = 0;  ///< updates done
    LinkModel links{};      ///< that ranks wait for: what the words leave out is kUnshaped
    LinkModel assumed{};    ///< that plans and the choice of all-reduces count with: LinkModel's defaults there
    bool operator==(const From&) const = default;
  };
  std::vector<From> parts{};  ///< by step, the first from 0; none: the network as it is

  bool shaped() const { return !parts.empty(); }
  /// What holds after `step` updates; LinkModel's defaults for a network as it is.
  From at(std::int64_t step) const;
  bool operator==(const NetworkShape&) const = default;
};

/// Without latency and with bandwidth beyond measure.
inline constexpr Link kUnshaped{0, 1e30};

/// Empty words: the network as it is. A word that a later step leaves out is as before it. Throws Error(config).
NetworkShape parse_network(const std::string& words);

}  // namespace ab
