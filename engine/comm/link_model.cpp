// SPDX-License-Identifier: MIT
#include "engine/comm/link_model.h"

namespace ab {

double LinkModel::seconds(Collective what, int ranks, int crossing_links, std::int64_t calls,
                          std::int64_t payload_bytes) const {
  const Link& link = crossing_links > 0 ? inter_node : intra_node;
  const double ring_steps = (what == Collective::all_reduce ? 2.0 : 1.0) * (ranks - 1);
  return static_cast<double>(calls) * ring_steps * link.latency +
         wire_factor(what, ranks) * static_cast<double>(payload_bytes) / link.bandwidth;
}

}  // namespace ab
