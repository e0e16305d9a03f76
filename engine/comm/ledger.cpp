// SPDX-License-Identifier: MIT
#include "engine/comm/ledger.h"

#include <algorithm>

namespace ab {
namespace {

/// Bytes one rank sends per byte of payload, mean over a ring of p ranks.
double wire_factor(Collective what, double p) {
  switch (what) {
    case Collective::barrier: return 0;
    case Collective::all_reduce: return 2 * (p - 1) / p;
    case Collective::broadcast:
    case Collective::reduce_scatter:
    case Collective::all_gather: return (p - 1) / p;
  }
  return 0;
}

void add(LedgerEntry& sum, const LedgerEntry& entry) {
  sum.calls += entry.calls;
  sum.payload_bytes += entry.payload_bytes;
  sum.intra_node_wire_bytes += entry.intra_node_wire_bytes;
  sum.inter_node_wire_bytes += entry.inter_node_wire_bytes;
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

std::vector<int> consecutive_nodes(int ranks, int ranks_per_node) {
  std::vector<int> nodes(static_cast<std::size_t>(ranks), 0);
  if (ranks_per_node > 0)
    for (int rank = 0; rank < ranks; ++rank) nodes[static_cast<std::size_t>(rank)] = rank / ranks_per_node;
  return nodes;
}

void Ledger::count(Collective what, const std::string& group, const std::vector<int>& world_ranks,
                   std::size_t payload_bytes) {
  const std::size_t p = world_ranks.size();
  const auto node = [&](std::size_t i) { return node_of_rank_.at(static_cast<std::size_t>(world_ranks[i])); };
  std::size_t crossing_links = 0;
  for (std::size_t i = 0; i < p; ++i) crossing_links += node(i) != node((i + 1) % p);

  const double wire = wire_factor(what, static_cast<double>(p)) * static_cast<double>(payload_bytes);
  const double inter_node = wire * static_cast<double>(crossing_links) / static_cast<double>(p);
  add(entries_[{what, group, phase_}],
      {1, static_cast<std::int64_t>(payload_bytes), wire - inter_node, inter_node});
}

LedgerEntry Ledger::total() const {
  LedgerEntry sum;
  for (const auto& [key, entry] : entries_) add(sum, entry);
  return sum;
}

LedgerEntry Ledger::total_of_phase(const std::string& phase) const {
  LedgerEntry sum;
  for (const auto& [key, entry] : entries_)
    if (key.phase == phase) add(sum, entry);
  return sum;
}

std::map<std::string, LedgerEntry> Ledger::by_phase() const {
  std::map<std::string, LedgerEntry> sums;
  for (const auto& [key, entry] : entries_) add(sums[key.phase], entry);
  return sums;
}

int Ledger::ranks_on_node_of(int world_rank) const {
  return static_cast<int>(std::count(node_of_rank_.begin(), node_of_rank_.end(),
                                     node_of_rank_.at(static_cast<std::size_t>(world_rank))));
}

}  // namespace ab
