#pragma once
// SPDX-License-Identifier: MIT
//
// What ranks that are threads of one process have in flight over a virtual network. Their messages are not really sent:
// what is told is when they would have arrived. The messages of all collectives pass the cards in the order of time, as
// they do between processes: a collective whose next messages are still to come holds no other up.

#include <cstdint>
#include <map>
#include <memory>
#include <queue>
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

/// One for all ranks; not thread-safe. Times that are passed in never decrease.
class VirtualTraffic {
 public:
  /// `node_of_rank`: of the world.
  explicit VirtualTraffic(const std::vector<int>& node_of_rank);
  /// The card of the node of `rank`.
  const VirtualCard& card_of(int rank) const { return now_.network.card_of(rank); }

  /// A collective that no member has started yet. Returns its number.
  std::int64_t add(VirtualCollective collective);
  /// `member` sends its first messages `now`.
  void start(std::int64_t number, int member, NetworkTime now);
  /// When `member` has the result of a collective that all its members have started. If that is later than `now`, then
  /// it is so only unless more is started meanwhile.
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
    std::map<std::pair<int, int>, std::queue<NetworkTime>> arrivals;  // by sender and receiver
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
    State& operator=(const State& other);
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

  State now_;
  State then_;  // when all that has been started will be over
  bool then_is_known_ = false;
  std::int64_t next_number_ = 0;
};

}  // namespace ab
