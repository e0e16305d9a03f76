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
// No ring serves an all-to-all, which has a part of its own for every rank: (p-1)/p · payload is sent straight there, and
// between nodes counts as sent.
// A group of one sends nothing.
// Beside these figures, which compare methods whatever carries them, stand the bytes as sent: what the algorithm in use
// (route.h) really puts on the wire, as the mean over the members of the group.
// It keeps whole numbers, calls and payload bytes of each ring; bytes on the wire follow from them when
// asked for. Counting a collective n times therefore gives exactly what n calls give, which lets a rehearsal of a run
// (apps/plan/rehearsal.h) be compared with the run byte for byte.

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/comm/network.h"

namespace ab {

struct LedgerKey {
  Collective collective;
  std::string group;
  std::string phase;
  Route route{};
  auto operator<=>(const LedgerKey&) const = default;
};

/// By what and over what collectives travel.
struct Wiring {
  AllReduce all_reduce = AllReduce::direct;
  NetworkShape network{};
};

/// Bytes that one rank sends per byte of payload, mean over a ring of `ranks`.
double wire_factor(Collective collective, int ranks);

struct LedgerEntry {
  std::int64_t calls = 0;
  std::int64_t payload_bytes = 0;
  double intra_node_wire_bytes = 0;  ///< sent by this rank, mean over the ring
  double inter_node_wire_bytes = 0;
  double intra_node_sent_bytes = 0;  ///< as sent, mean over the group
  double inter_node_sent_bytes = 0;
  double wire_bytes() const { return intra_node_wire_bytes + inter_node_wire_bytes; }
  double sent_bytes() const { return intra_node_sent_bytes + inter_node_sent_bytes; }
  bool operator==(const LedgerEntry&) const = default;
};

/// Node of each world rank when consecutive ranks fill one node after another; ranks_per_node 0: one node.
std::vector<int> consecutive_nodes(int ranks, int ranks_per_node);

/// One per rank, shared by its communicators and used by its thread only.
class Ledger {
 public:
  /// `node_of_rank`: the node of each world rank, by any number.
  explicit Ledger(const std::vector<int>& node_of_rank, Wiring wiring = {})
      : node_of_rank_(Layout(node_of_rank).node_of), wiring_(std::move(wiring)) {
    begin_step(0);
  }
  /// Of each rank of the world; nodes count from 0 in the order of their first ranks.
  const std::vector<int>& node_of_rank() const { return node_of_rank_; }
  /// How many ranks of the world share the node of this one.
  int ranks_on_node_of(int world_rank) const;

  /// Everything counted from here on belongs to this phase of training.
  void set_phase(std::string phase) { phase_ = std::move(phase); }
  const std::string& phase() const { return phase_; }

  /// The network is that of this step from here on.
  void begin_step(std::int64_t step) { network_ = wiring_.network.at(step); }
  const LinkModel& links() const { return network_.links; }
  /// From here on all-reduces travel so, unless a library carries them. Returns how they did.
  AllReduce use_all_reduce(AllReduce algorithm) {
    if (wiring_.all_reduce == AllReduce::library) return AllReduce::library;
    return std::exchange(wiring_.all_reduce, algorithm);
  }

  /// A group, by its ranks in the world in rank order.
  Layout layout_of(const std::vector<int>& world_ranks) const;
  /// How a collective of that size travels.
  Route route(Collective what, const Layout& group, std::int64_t payload_bytes) const;
  /// Counts `times` collectives of that size.
  void count(Collective what, const std::string& group, const Layout& layout, std::int64_t payload_bytes,
             std::int64_t times = 1);
  void count(Collective what, const std::string& group, const std::vector<int>& world_ranks, std::int64_t payload_bytes,
             std::int64_t times = 1) {
    count(what, group, layout_of(world_ranks), payload_bytes, times);
  }

  /// Counts what `other` has counted too, so many times.
  void merge(const Ledger& other, std::int64_t times = 1);
  /// Counts in that phase what `other` has counted there, in place of its own.
  void replace_phase(const std::string& phase, const Ledger& other);
  /// Takes what has been counted so far.
  Ledger take() {
    Ledger counted = *this;
    tallies_.clear();
    return counted;
  }

  /// All counts as text, and back: a resumed run goes on counting.
  std::string to_text() const;
  void from_text(const std::string& text);

  /// Time that this rank has spent waiting in collectives, in the present phase; not part of the text.
  void add_waiting(double seconds) { waiting_[phase_] += seconds; }
  const std::map<std::string, double>& waiting_seconds() const { return waiting_; }

  std::map<LedgerKey, LedgerEntry> entries() const;
  LedgerEntry total() const;
  LedgerEntry total_of_phase(const std::string& phase) const;
  std::map<std::string, LedgerEntry> by_phase() const;

 private:
  struct Tally {
    std::int64_t calls = 0, payload_bytes = 0;
  };

  std::vector<int> node_of_rank_;
  Wiring wiring_;
  NetworkShape::From network_;  // of the step
  std::string phase_ = "setup";
  std::map<LedgerKey, Tally> tallies_;
  std::map<std::string, double> waiting_;
};

/// While one lives, collectives count nowhere: the ledger becomes again what it was. For those that are not of the method.
class Uncounted {
 public:
  explicit Uncounted(Ledger& ledger) : ledger_(ledger), before_(ledger) {}
  ~Uncounted() { ledger_ = std::move(before_); }
  Uncounted(const Uncounted&) = delete;
  Uncounted& operator=(const Uncounted&) = delete;

 private:
  Ledger& ledger_;
  Ledger before_;
};

}  // namespace ab
