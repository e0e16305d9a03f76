#pragma once
// SPDX-License-Identifier: MIT
//
// How a collective travels over p ranks on m nodes, and how many messages that takes. In units of 1/p of the payload, all
// ranks together send, for an all-reduce,
//   direct      2 p (p-1)            in 2 rounds: every rank adds up its part of all operands and hands it to all
//   ring        2 p (p-1)            in 2 (p-1) rounds: parts are added up on their way around, and go around once more
//   tree        2 p (p-1)            in 2 ceil(log2 p) rounds: whole buffers up a binomial tree to the first rank, and down
//   two-level   2 p (n-1) m + 2 p (m-1)   in 4 rounds, with n ranks on every node: parts of a node's sum inside the
//                                    nodes, of the whole across them, and the way back
// The other collectives are one half of the direct exchange, or (broadcast) as much; all_to_all with NCCL too. Between nodes, direct sends
// n (p-n)/(p-1) times what a ring does, two-level least of all.
// Direct adds all operands in rank order and rounds once, two-level in the order of ranks inside a node and of nodes,
// rounding each node's sum. Ring and tree round at every hop.

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

namespace ab {

enum class Collective : std::uint8_t { barrier, broadcast, all_reduce, reduce_scatter, all_gather, all_to_all };
const char* name_of(Collective collective);

enum class AllReduce : std::uint8_t {
  direct,
  ring,
  tree,
  two_level,  ///< where all nodes hold as many of the group, more than one, and there are several; else direct
  automatic,  ///< the one of these for which LinkModel gives the shortest time
  library,    ///< NCCL's choice, for all collectives; counted as rings
};
const char* name_of(AllReduce algorithm);

/// 0, 1, … count-1: the ranks of a world of so many.
std::vector<int> first_ranks(int count);

/// A group as it lies on nodes. Members are numbered in rank order.
struct Layout {
  Layout() = default;
  /// `node_of`: the node of each member, by any number.
  explicit Layout(const std::vector<int>& node_of);

  int ranks() const { return static_cast<int>(node_of.size()); }
  int nodes() const { return static_cast<int>(members.size()); }
  bool even() const;  ///< as many members on every node

  std::vector<int> node_of{};               ///< of each member, as an index of `members`
  std::vector<std::vector<int>> members{};  ///< of each node, ascending
  /// The ring runs through the members in rank order and back to the first: those of its links that join two nodes.
  int crossing_links = 0;
};

/// The facts that all collectives of a kind over a group share.
struct Route {
  AllReduce algorithm = AllReduce::direct;
  int ranks = 1, nodes = 1;
  int crossing_links = 0;        ///< of the ring
  std::int64_t inter_parts = 0;  ///< sent by all ranks together from node to node, in 1/ranks of the payload
  std::int64_t intra_parts = 0;  ///< inside nodes
  auto operator<=>(const Route&) const = default;
};

/// `algorithm` is that of all-reduces, and not automatic.
Route route_of(Collective what, AllReduce algorithm, const Layout& layout);

/// Collectives go in segments, one after the other, so that what a rank has received and not yet added stays bounded:
/// how many there are of a payload of `bytes`, and the bytes of all but the last.
std::int64_t segment_bytes(const Route& route);
std::int64_t segments(const Route& route, std::int64_t bytes);

// The messages of a collective, as one of its ranks sends and receives them: in each round all sends and receives at
// once, and the next when they are done. The rounds of all ranks send what route_of() counts.

/// Parts [first, last) of the buffer, in their places there, to or from a member of the group. An all-to-all has two buffers:
/// sends are of its input, receives of its output.
struct Transfer {
  int peer;
  int first, last;
};

struct Round {
  std::vector<Transfer> sends{}, receives{};
  /// Empty: what comes takes its place in the buffer. Else all that comes is of the same parts and is added up in this
  /// order of ranks, this one among them.
  std::vector<int> operands{};
  bool completes_sum = false;  ///< of all ranks: a mean is divided here
};

struct MessageRounds {
  int parts = 1;  ///< that the buffer is cut into, in order and of equal size (part_of_rank() in comm.h)
  std::vector<Round> rounds{};
};

/// `rank` and `root` are members of the group.
MessageRounds message_rounds(Collective what, const Route& route, const Layout& layout, int rank, int root = 0);

}  // namespace ab
