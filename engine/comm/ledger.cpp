// SPDX-License-Identifier: MIT
#include "engine/comm/ledger.h"

#include <algorithm>
#include <sstream>

#include "engine/core/check.h"

namespace ab {
namespace {

void add(LedgerEntry& sum, const LedgerEntry& entry) {
  sum.calls += entry.calls;
  sum.payload_bytes += entry.payload_bytes;
  sum.intra_node_wire_bytes += entry.intra_node_wire_bytes;
  sum.inter_node_wire_bytes += entry.inter_node_wire_bytes;
}

}  // namespace

double wire_factor(Collective collective, int ranks) {
  const double p = ranks;
  switch (collective) {
    case Collective::barrier: return 0;
    case Collective::all_reduce: return 2 * (p - 1) / p;
    case Collective::broadcast:
    case Collective::reduce_scatter:
    case Collective::all_gather: return (p - 1) / p;
  }
  return 0;
}

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
                   std::int64_t payload_bytes, std::int64_t times) {
  if (times == 0) return;
  Tally& tally =
      tallies_[{what, group, phase_, static_cast<int>(world_ranks.size()), crossing_links(world_ranks)}];
  tally.calls += times;
  tally.payload_bytes += times * payload_bytes;
}

int Ledger::crossing_links(const std::vector<int>& world_ranks) const {
  const std::size_t p = world_ranks.size();
  const auto node = [&](std::size_t i) { return node_of_rank_.at(static_cast<std::size_t>(world_ranks[i])); };
  int crossing = 0;
  for (std::size_t i = 0; i < p; ++i) crossing += node(i) != node((i + 1) % p);
  return crossing;
}

std::map<LedgerKey, LedgerEntry> Ledger::entries() const {
  std::map<LedgerKey, LedgerEntry> entries;
  for (const auto& [key, tally] : tallies_) {
    const double wire = wire_factor(key.collective, key.ranks) * static_cast<double>(tally.payload_bytes);
    const double inter_node = wire * key.crossing_links / key.ranks;
    entries[key] = {tally.calls, tally.payload_bytes, wire - inter_node, inter_node};
  }
  return entries;
}

LedgerEntry Ledger::total() const {
  LedgerEntry sum;
  for (const auto& [key, entry] : entries()) add(sum, entry);
  return sum;
}

LedgerEntry Ledger::total_of_phase(const std::string& phase) const {
  LedgerEntry sum;
  for (const auto& [key, entry] : entries())
    if (key.phase == phase) add(sum, entry);
  return sum;
}

std::map<std::string, LedgerEntry> Ledger::by_phase() const {
  std::map<std::string, LedgerEntry> sums;
  for (const auto& [key, entry] : entries()) add(sums[key.phase], entry);
  return sums;
}

std::string Ledger::to_text() const {
  std::string text;
  for (const auto& [key, tally] : tallies_)
    text += fmt::format("{} {} {} {} {} {} {}\n", static_cast<int>(key.collective), key.group, key.phase, key.ranks,
                        key.crossing_links, tally.calls, tally.payload_bytes);
  return text;
}

void Ledger::from_text(const std::string& text) {
  tallies_.clear();
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    LedgerKey key;
    Tally tally;
    int collective = -1;
    fields >> collective >> key.group >> key.phase >> key.ranks >> key.crossing_links >> tally.calls >> tally.payload_bytes;
    AB_CHECK_KIND(checkpoint, fields && collective >= 0 && collective <= static_cast<int>(Collective::all_gather),
                  "the checkpoint's traffic ledger cannot be read: '{}'", line);
    key.collective = static_cast<Collective>(collective);
    tallies_[key] = tally;
  }
}

int Ledger::ranks_on_node_of(int world_rank) const {
  return static_cast<int>(std::count(node_of_rank_.begin(), node_of_rank_.end(),
                                     node_of_rank_.at(static_cast<std::size_t>(world_rank))));
}

}  // namespace ab
