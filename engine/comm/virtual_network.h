#pragma once
// SPDX-License-Identifier: MIT
//
// A network that is not there, for ranks on one machine. Every node has a network card and every rank a port inside its
// node; a message of b bytes keeps the sender's busy until  s = max(now, free) + b/beta,  the receiver's until
// r = max(s, free + b/beta)  (so messages to one node queue), and arrives at r + alpha. An alpha-beta network, not TCP:
// no loss, no windows, no headers. What computes and copies takes its own time beside.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <vector>

#include "engine/comm/message_rounds.h"
#include "engine/comm/network_shape.h"

namespace ab {

/// Nanoseconds of the steady clock, which all processes of a machine share.
using NetworkTime = std::int64_t;
inline NetworkTime network_now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// A card or port, in memory that all ranks share. All zero at first.
struct VirtualCard {
  std::atomic<NetworkTime> sends_until, receives_until;
  std::atomic<std::int64_t> bytes_sent, bytes_received;
};

class VirtualNetwork {
 public:
  /// `node_of_rank`: of the world. `cards`: card_count() of them, which outlive this.
  VirtualNetwork(std::vector<int> node_of_rank, VirtualCard* cards);
  static std::size_t card_count(const std::vector<int>& node_of_rank);

  struct Message {
    int from, to;  ///< ranks of the world
    std::int64_t bytes;
  };
  /// A message is sent at `now`: s, when it has left the sender. Any rank may call at any time.
  NetworkTime leave(const Message& message, NetworkTime now, const LinkModel& links);
  /// The same message comes to the receiver's card at s: r + alpha, when it arrives. To be called when s has come, as
  /// messages to one node queue in this order.
  NetworkTime arrive(const Message& message, NetworkTime left, const LinkModel& links);

  /// When all that has been sent so far has passed all cards and ports.
  NetworkTime busy_until() const;
  /// The card of the node of `rank`.
  const VirtualCard& card_of(int rank) const { return cards_[node(rank)]; }

 private:
  bool crosses(const Message& message) const { return node(message.from) != node(message.to); }
  std::size_t node(int rank) const { return static_cast<std::size_t>(layout_.node_of[static_cast<std::size_t>(rank)]); }
  std::size_t port(int rank) const { return layout_.members.size() + static_cast<std::size_t>(rank); }

  Layout layout_;
  VirtualCard* cards_;
};

}  // namespace ab
