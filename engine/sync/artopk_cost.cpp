// SPDX-License-Identifier: MIT
#include "engine/sync/artopk_cost.h"

#include <algorithm>
#include <cmath>

#include "engine/core/check.h"

namespace ab {
namespace {

double log_of(int ranks) { return std::log2(static_cast<double>(ranks)); }

}  // namespace

double ring_seconds(int ranks, double bytes, const Link& link) {
  return 2.0 * (ranks - 1) * (link.latency + bytes / ranks / link.bandwidth);
}

double tree_seconds(int ranks, double bytes, const Link& link) {
  return 2 * log_of(ranks) * (link.latency + bytes / link.bandwidth);
}

double broadcast_seconds(int ranks, double bytes, const Link& link) {
  return log_of(ranks) * (link.latency + bytes / link.bandwidth);
}

double gather_seconds(int ranks, double bytes, const Link& link) {
  return log_of(ranks) * link.latency + (ranks - 1) * bytes / link.bandwidth;
}

const char* name_of(ArtopkWay way) {
  switch (way) {
    case ArtopkWay::ring: return "ring";
    case ArtopkWay::tree: return "tree";
    case ArtopkWay::gather: return "gather";
  }
  return "?";
}

ArtopkPayload artopk_payload(std::int64_t k, std::int64_t wire_bytes) {
  const auto elements = static_cast<double>(k);
  return {4 * elements, static_cast<double>(wire_bytes) * elements, 8 * elements};
}

double artopk_seconds(ArtopkWay way, int ranks, const ArtopkPayload& payload, const Link& link) {
  if (way == ArtopkWay::gather) return gather_seconds(ranks, payload.gathered_bytes, link);
  const auto& all_reduce_seconds = way == ArtopkWay::ring ? ring_seconds : tree_seconds;
  return broadcast_seconds(ranks, payload.index_bytes, link) + all_reduce_seconds(ranks, payload.summed_bytes, link);
}

ArtopkWay fastest_way(int ranks, const ArtopkPayload& payload, const Link& link) {
  return *std::ranges::min_element(kArtopkWays, {},
                                   [&](ArtopkWay way) { return artopk_seconds(way, ranks, payload, link); });
}

Link link_of_ring(int ranks, double small_bytes, double small_seconds, double large_bytes, double large_seconds) {
  AB_ASSERT(ranks >= 2 && large_bytes > small_bytes);
  constexpr double kLeastSecondsPerByte = 1e-13;
  const double rounds = 2.0 * (ranks - 1);
  const double beta =
      std::max((large_seconds - small_seconds) * ranks / (rounds * (large_bytes - small_bytes)), kLeastSecondsPerByte);
  return {std::max(small_seconds / rounds - small_bytes / ranks * beta, 0.0), 1 / beta};
}

const Link& link_of_group(const Layout& group, const LinkModel& links) {
  return group.nodes() > 1 ? links.inter_node : links.intra_node;
}

}  // namespace ab
