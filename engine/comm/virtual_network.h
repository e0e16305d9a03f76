#pragma once
// SPDX-License-Identifier: MIT
//
// A network that is not there, for ranks on one machine. Every node has a network card and every rank a port inside its
// node; a message of b bytes keeps the sender's busy until  s = max(now, free) + b/beta,  the receiver's until
// r = max(s, free + b/beta)  (so messages to one node queue), and arrives at r + alpha. An alpha-beta network, not TCP:
// no loss, no windows, no headers. Computing and copying take their own time beside.

#include <atomic>
#include <chrono>
#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <utility>
#include <vector>

#include "engine/comm/network.h"
#include "engine/comm/route.h"

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

// The collectives that ranks, as threads of one process, have in flight over a virtual network. Their messages are not really sent:
// what is told is when they would have arrived. The messages of all collectives pass the cards in the order of time, as
// they do between processes: a collective whose next messages are still to come holds no other up.

struct VirtualCollective {
  Collective what;
  Route route;
  Layout layout;
  std::vector<int> world_ranks;  ///< of the members
  int root = 0;
  std::vector<std::int64_t> segments;  ///< bytes of each
  LinkModel links;
};

/// One for all ranks; not thread-safe.
class VirtualTraffic {
 public:
  /// `node_of_rank`: of the world.
  explicit VirtualTraffic(const std::vector<int>& node_of_rank);
  /// The card of the node of `rank`. It has counted what set out before the last over().
  const VirtualCard& card_of(int rank) const { return present_.network.card_of(rank); }

  /// A collective that no member has started yet. Returns its number.
  std::int64_t add(VirtualCollective collective);
  /// `member` sends its first messages at `now`, which is not before that of the last over().
  void start(std::int64_t number, int member, NetworkTime now);
  /// Goes on to `now`, which never decreases, and tells when `member` has the result of a collective that all its
  /// members have started. A time after `now` is what is expected: what starts meanwhile may delay this collective, or
  /// one that was ahead of it.
  NetworkTime over(std::int64_t number, int member, NetworkTime now);
  /// After it is over for all members.
  void forget(std::int64_t number);

 private:
  struct Plan {
    VirtualCollective collective;
    std::vector<MessageRounds> rounds;  // of each member
  };
  /// A member of a collective and what it waits for.
  struct Member {
    std::size_t segment = 0, round = 0;
    bool inside_round = false;
    std::size_t sends_under_way = 0;
    NetworkTime done = 0;   // with what it has sent and received of this round
    NetworkTime over = -1;  // with everything, if it is
  };
  struct Flight {
    std::shared_ptr<const Plan> plan;
    std::vector<Member> members;
    std::map<std::pair<int, int>, std::queue<NetworkTime>> arrivals;  // by sender and receiver; none is empty
  };
  /// A member comes to its next round; or (to >= 0) a message of a member comes to the receiver's card.
  struct Event {
    NetworkTime time;
    std::int64_t flight;
    int member, to;
    std::int64_t bytes;
    auto operator<=>(const Event&) const = default;
  };
  /// How far everything is.
  struct State {
    explicit State(const std::vector<int>& node_of_rank);
    void take(const State& other);
    void run_until(NetworkTime end);
    void begin_round(const Event& event);
    void come_to_receiver(const Event& event);
    void end_round(std::int64_t number, int member);

    std::size_t card_count;
    std::unique_ptr<VirtualCard[]> cards;
    VirtualNetwork network;
    std::map<std::int64_t, Flight> flights{};
    std::priority_queue<Event, std::vector<Event>, std::greater<>> events{};
  };

  State present_;
  State expected_;  // in the end, if nothing more is started
  bool is_expected_ = false;
  std::int64_t next_number_ = 0;
};

}  // namespace ab
