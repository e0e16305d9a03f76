#pragma once
// SPDX-License-Identifier: MIT
//
// Counts what communication costs, where it happens: per collective, group and phase of training. Strategies
// never count for themselves, so the figures of two methods are comparable.
// payload_bytes is the size of the full buffer of a collective (all parts of a gather); wire_bytes is what
// one rank sends for it under ring algorithms (Patarasu & Yuan 2009), with p ranks in the group:
//   all-reduce                    2 (p-1)/p · payload
//   reduce-scatter, all-gather      (p-1)/p · payload
//   broadcast                       (p-1)/p · payload    only p-1 ranks pass it on; this is the mean
//   barrier                         0
// The ring runs through the members in rank order and back to the first: p links. If c of them join ranks on
// different nodes, then, as the mean over the ring,
//   inter_node = wire · c/p         intra_node = wire · (p-c)/p
// A group of one sends nothing.
// What is kept are whole numbers, calls and payload bytes of each ring; bytes on the wire follow from them when
// asked for. Counting a collective n times therefore gives exactly what n calls give, which lets a plan of a run
// (engine/plan/traffic_plan.h) be compared with the run byte for byte.

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace ab {

enum class Collective : std::uint8_t { barrier, broadcast, all_reduce, reduce_scatter, all_gather };

const char* name_of(Collective collective);

struct LedgerKey {
  Collective collective;
  std::string group;
  std::string phase;
  int ranks = 1;           ///< p, the members of the ring
  int crossing_links = 0;  ///< c, those of its p links that join two nodes
  auto operator<=>(const LedgerKey&) const = default;
};

/// Bytes that one rank sends per byte of payload, mean over a ring of `ranks`.
double wire_factor(Collective collective, int ranks);

struct LedgerEntry {
  std::int64_t calls = 0;
  std::int64_t payload_bytes = 0;
  double intra_node_wire_bytes = 0;  ///< sent by this rank, mean over the ring
  double inter_node_wire_bytes = 0;
  double wire_bytes() const { return intra_node_wire_bytes + inter_node_wire_bytes; }
  bool operator==(const LedgerEntry&) const = default;
};

/// Node of each world rank when consecutive ranks fill one node after another; ranks_per_node 0: one node.
std::vector<int> consecutive_nodes(int ranks, int ranks_per_node);

/// One per rank, shared by its communicators and used by its thread only.
class Ledger {
 public:
  /// `node_of_rank`: the node of each world rank.
  explicit Ledger(std::vector<int> node_of_rank) : node_of_rank_(std::move(node_of_rank)) {}
  /// How many ranks of the world share the node of this one.
  int ranks_on_node_of(int world_rank) const;

  /// Everything counted from here on belongs to this phase of training.
  void set_phase(std::string phase) { phase_ = std::move(phase); }
  const std::string& phase() const { return phase_; }

  /// Counts `times` collectives of that size. `world_ranks`: the members of the group in rank order.
  void count(Collective what, const std::string& group, const std::vector<int>& world_ranks,
             std::int64_t payload_bytes, std::int64_t times = 1);
  /// Links of the ring through `world_ranks` that join ranks on different nodes.
  int crossing_links(const std::vector<int>& world_ranks) const;

  /// All counts as text, and back: a resumed run goes on counting.
  std::string to_text() const;
  void from_text(const std::string& text);

  std::map<LedgerKey, LedgerEntry> entries() const;
  LedgerEntry total() const;
  LedgerEntry total_of_phase(const std::string& phase) const;
  std::map<std::string, LedgerEntry> by_phase() const;

 private:
  struct Tally {
    std::int64_t calls = 0, payload_bytes = 0;
  };

  std::vector<int> node_of_rank_;
  std::string phase_ = "setup";
  std::map<LedgerKey, Tally> tallies_;
};

}  // namespace ab
