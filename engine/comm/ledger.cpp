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
  sum.intra_node_sent_bytes += entry.intra_node_sent_bytes;
  sum.inter_node_sent_bytes += entry.inter_node_sent_bytes;
}

}  // namespace

double wire_factor(Collective collective, int ranks) {
  const double p = ranks;
  switch (collective) {
    case Collective::barrier: return 0;
    case Collective::all_reduce: return 2 * (p - 1) / p;
    case Collective::broadcast:
    case Collective::reduce_scatter:
    case Collective::all_gather:
    case Collective::all_to_all: return (p - 1) / p;
  }
  return 0;
}

std::vector<int> consecutive_nodes(int ranks, int ranks_per_node) {
  std::vector<int> nodes(static_cast<std::size_t>(ranks), 0);
  if (ranks_per_node > 0)
    for (int rank = 0; rank < ranks; ++rank) nodes[static_cast<std::size_t>(rank)] = rank / ranks_per_node;
  return nodes;
}

Layout Ledger::layout_of(const std::vector<int>& world_ranks) const {
  std::vector<int> nodes;
  for (const int rank : world_ranks) nodes.push_back(node_of_rank_.at(static_cast<std::size_t>(rank)));
  return Layout(nodes);
}

Route Ledger::route(Collective what, const Layout& group, std::int64_t payload_bytes) const {
  const bool asks = wiring_.all_reduce == AllReduce::automatic && what == Collective::all_reduce;
  AllReduce algorithm = wiring_.all_reduce;
  if (algorithm == AllReduce::automatic)
    algorithm = asks ? network_.assumed.fastest(group, payload_bytes) : AllReduce::direct;
  return route_of(what, algorithm, group);
}

void Ledger::count(Collective what, const std::string& group, const Layout& layout, std::int64_t payload_bytes,
                   std::int64_t times) {
  if (times == 0) return;
  Tally& tally = tallies_[{what, group, phase_, route(what, layout, payload_bytes)}];
  tally.calls += times;
  tally.payload_bytes += times * payload_bytes;
}

void Ledger::replace_phase(const std::string& phase, const Ledger& other) {
  std::erase_if(tallies_, [&](const auto& tally) { return tally.first.phase == phase; });
  for (const auto& [key, tally] : other.tallies_)
    if (key.phase == phase) tallies_[key] = tally;
}

void Ledger::merge(const Ledger& other, std::int64_t times) {
  if (times == 0) return;
  for (const auto& [key, tally] : other.tallies_) {
    Tally& sum = tallies_[key];
    sum.calls += times * tally.calls;
    sum.payload_bytes += times * tally.payload_bytes;
  }
}

std::map<LedgerKey, LedgerEntry> Ledger::entries() const {
  std::map<LedgerKey, LedgerEntry> entries;
  for (const auto& [key, tally] : tallies_) {
    const Route& route = key.route;
    const double ranks = route.ranks, payload = static_cast<double>(tally.payload_bytes);
    const double wire = wire_factor(key.collective, route.ranks) * payload;
    const bool on_ring = key.collective != Collective::all_to_all;
    const std::int64_t crossing = on_ring ? route.crossing_links : route.inter_parts;
    const std::int64_t links = on_ring ? route.ranks : std::max<std::int64_t>(1, route.inter_parts + route.intra_parts);
    const double inter_node = wire * static_cast<double>(crossing) / static_cast<double>(links);
    const double part = payload / (ranks * ranks);  // of one rank's share of what all ranks send
    entries[key] = {tally.calls,
                    tally.payload_bytes,
                    wire - inter_node,
                    inter_node,
                    static_cast<double>(route.intra_parts) * part,
                    static_cast<double>(route.inter_parts) * part};
  }
  return entries;
}

LedgerEntry Ledger::total() const {
  LedgerEntry sum;
  for (const auto& [key, entry] : entries()) add(sum, entry);
  return sum;
}

LedgerEntry Ledger::total_of_phase(const std::string& phase) const { return by_phase()[phase]; }

std::map<std::string, LedgerEntry> Ledger::by_phase() const {
  std::map<std::string, LedgerEntry> sums;
  for (const auto& [key, entry] : entries()) add(sums[key.phase], entry);
  return sums;
}

// A line of text is: collective group phase ranks crossing_links calls payload_bytes algorithm nodes inter_parts
// intra_parts.
std::string Ledger::to_text() const {
  std::string text;
  for (const auto& [key, tally] : tallies_)
    text += fmt::format("{} {} {} {} {} {} {} {} {} {} {}\n", static_cast<int>(key.collective), key.group, key.phase,
                        key.route.ranks, key.route.crossing_links, tally.calls, tally.payload_bytes,
                        static_cast<int>(key.route.algorithm), key.route.nodes, key.route.inter_parts,
                        key.route.intra_parts);
  return text;
}

void Ledger::from_text(const std::string& text) {
  tallies_.clear();
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    LedgerKey key;
    Route& route = key.route;
    Tally tally;
    int collective = -1, algorithm = -1;
    fields >> collective >> key.group >> key.phase >> route.ranks >> route.crossing_links >> tally.calls >>
        tally.payload_bytes >> algorithm >> route.nodes >> route.inter_parts >> route.intra_parts;
    AB_CHECK_KIND(checkpoint,
                  fields && 0 <= collective && collective <= static_cast<int>(Collective::all_to_all) &&
                      0 <= algorithm && algorithm <= static_cast<int>(AllReduce::library),
                  "the checkpoint's traffic ledger cannot be read: '{}'", line);
    key.collective = static_cast<Collective>(collective);
    route.algorithm = static_cast<AllReduce>(algorithm);
    tallies_[key] = tally;
  }
}

int Ledger::ranks_on_node_of(int world_rank) const {
  return static_cast<int>(
      std::count(node_of_rank_.begin(), node_of_rank_.end(), node_of_rank_.at(static_cast<std::size_t>(world_rank))));
}

}  // namespace ab
