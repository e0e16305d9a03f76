#pragma once
// SPDX-License-Identifier: MIT
//
// What ranks that are threads of one process have in flight over a virtual network. Their messages are not really sent:
// what is told is when they would have arrived. The messages of all collectives pass the cards in the order of time, as
// they do between processes: a collective whose next messages are still to come holds no other up.

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <utility>
#include <vector>

#include "engine/comm/virtual_network.h"

namespace ab {

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
