#pragma once
// SPDX-License-Identifier: MIT
//
// A network in words:
//   latency=4ms,bandwidth=20Gbps                         between nodes; inside them as it is
//   latency=50us,bandwidth=100Gbps,node-latency=2us,node-bandwidth=300GB/s
//   latency=1ms,bandwidth=25Gbps; from 500: bandwidth=1Gbps     another one after 500 updates
// Latencies are one way, in ns, us, ms or s. Bandwidths are those of a node's network card, in each direction, or of a
// rank inside its node: in kbps, Mbps or Gbps (bits), or in kB/s, MB/s or GB/s (bytes), all decimal.

#include <string>
#include <vector>

#include "engine/comm/link_model.h"

namespace ab {

struct NetworkShape {
  struct From {
    std::int64_t step;  ///< updates done
    LinkModel links;    ///< that ranks wait for: what the words leave out is kUnshaped
    LinkModel assumed;  ///< that plans and the choice of all-reduces count with: LinkModel's defaults there
    bool operator==(const From&) const = default;
  };
  std::vector<From> parts{};  ///< by step, the first from 0; none: the network as it is

  bool shaped() const { return !parts.empty(); }
  /// What holds after `step` updates; LinkModel's defaults for a network as it is.
  LinkModel at(std::int64_t step) const;
  LinkModel assumed_at(std::int64_t step) const;
  bool operator==(const NetworkShape&) const = default;
};

/// Without latency and with bandwidth beyond measure.
inline constexpr Link kUnshaped{0, 1e30};

/// Empty words: the network as it is. What a later step leaves out is as before it. Throws Error(config).
NetworkShape parse_network(const std::string& words);

}  // namespace ab
