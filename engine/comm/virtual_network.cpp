// SPDX-License-Identifier: MIT
#include "engine/comm/virtual_network.h"

#include <deque>
#include <map>
#include <queue>

#include "engine/comm/collective_call.h"

namespace ab {
namespace {

NetworkTime duration(double seconds) { return static_cast<NetworkTime>(seconds * 1e9); }

NetworkTime time_to_send(std::int64_t bytes, const Link& link) {
  return duration(static_cast<double>(bytes) / link.bandwidth);
}

/// Sets a clock from where it stands, whoever else does so at the same time; returns where it stands then.
template <class Next> NetworkTime move_on(std::atomic<NetworkTime>& clock, Next next) {
  NetworkTime before = clock.load();
  NetworkTime after = next(before);
  while (!clock.compare_exchange_weak(before, after)) after = next(before);
  return after;
}

/// A member of a collective and what it waits for.
class Member {
 public:
  explicit Member(MessageRounds rounds) : rounds_(std::move(rounds)) {}

  int parts() const { return rounds_.parts; }
  bool takes_part() const { return !rounds_.rounds.empty(); }
  const Round& round() const { return rounds_.rounds[round_]; }
  void next_round() {
    if (++round_ < rounds_.rounds.size()) return;
    round_ = 0;
    ++segment;
  }

  std::size_t segment = 0;
  bool inside_round = false;
  std::size_t sends_under_way = 0;
  NetworkTime done = 0;  // with what it has sent and received of this round

 private:
  MessageRounds rounds_;
  std::size_t round_ = 0;
};

/// Goes from event to event in the order of time.
class Simulation {
 public:
  Simulation(const VirtualCollective& collective, VirtualNetwork& network, const LinkModel& links)
      : collective_(collective), network_(network), links_(links) {
    for (int rank = 0; rank < collective.layout.ranks(); ++rank)
      members_.emplace_back(
          message_rounds(collective.what, collective.route, collective.layout, rank, collective.root));
  }

  std::vector<NetworkTime> run(std::vector<NetworkTime> times) {
    for (int rank = 0; rank < collective_.layout.ranks(); ++rank)
      if (member(rank).takes_part()) events_.push({times[static_cast<std::size_t>(rank)], rank, -1, 0});
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      if (event.to >= 0) {
        come_to_receiver(event);
        continue;
      }
      times[static_cast<std::size_t>(event.rank)] = event.time;
      if (member(event.rank).segment < collective_.segments.size()) begin_round(event.rank, event.time);
    }
    return times;
  }

 private:
  /// A member comes to its next round; or (to >= 0) a message of a member comes to the receiver's card.
  struct Event {
    NetworkTime time;
    int rank, to;
    std::int64_t bytes;
    auto operator<=>(const Event&) const = default;
  };

  void begin_round(int rank, NetworkTime now) {
    Member& sender = member(rank);
    sender.done = now;
    sender.inside_round = true;
    for (const Transfer& send : sender.round().sends) {
      const std::int64_t bytes = bytes_of(send, sender);
      events_.push({network_.leave(message(rank, send.peer, bytes), now, links_), rank, send.peer, bytes});
      ++sender.sends_under_way;
    }
    end_round(rank);
  }

  void come_to_receiver(const Event& event) {
    const NetworkTime arrival = network_.arrive(message(event.rank, event.to, event.bytes), event.time, links_);
    arrivals_[{event.rank, event.to}].push_back(arrival);
    Member& sender = member(event.rank);
    sender.done = std::max(sender.done, arrival);
    --sender.sends_under_way;
    end_round(event.rank);
    end_round(event.to);
  }

  /// If everything that it sends and receives is known to arrive.
  void end_round(int rank) {
    Member& waiting = member(rank);
    if (!waiting.inside_round || waiting.sends_under_way > 0) return;
    for (const Transfer& receive : waiting.round().receives)
      if (arrivals_[{receive.peer, rank}].empty()) return;
    for (const Transfer& receive : waiting.round().receives) {
      std::deque<NetworkTime>& from_peer = arrivals_[{receive.peer, rank}];
      waiting.done = std::max(waiting.done, from_peer.front());
      from_peer.pop_front();
    }
    waiting.inside_round = false;
    waiting.next_round();
    events_.push({waiting.done, rank, -1, 0});
  }

  std::int64_t bytes_of(const Transfer& transfer, const Member& sender) const {
    const std::int64_t bytes = collective_.segments[sender.segment];
    return part_of_rank(bytes, transfer.last - 1, sender.parts()).end -
           part_of_rank(bytes, transfer.first, sender.parts()).begin;
  }
  VirtualNetwork::Message message(int from, int to, std::int64_t bytes) const {
    return {collective_.world_ranks[static_cast<std::size_t>(from)],
            collective_.world_ranks[static_cast<std::size_t>(to)], bytes};
  }
  Member& member(int rank) { return members_[static_cast<std::size_t>(rank)]; }

  const VirtualCollective& collective_;
  VirtualNetwork& network_;
  const LinkModel& links_;
  std::vector<Member> members_;
  std::map<std::pair<int, int>, std::deque<NetworkTime>> arrivals_;  // by sender and receiver
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
};

}  // namespace

VirtualNetwork::VirtualNetwork(std::vector<int> node_of_rank, VirtualCard* cards)
    : layout_(node_of_rank), cards_(cards) {}

std::size_t VirtualNetwork::card_count(const std::vector<int>& node_of_rank) {
  return Layout(node_of_rank).members.size() + node_of_rank.size();
}

NetworkTime VirtualNetwork::leave(const Message& message, NetworkTime now, const LinkModel& links) {
  const bool away = crosses(message);
  VirtualCard& card = cards_[away ? node(message.from) : port(message.from)];
  card.bytes_sent += message.bytes;
  const NetworkTime busy = time_to_send(message.bytes, away ? links.inter_node : links.intra_node);
  return move_on(card.sends_until, [&](NetworkTime free) { return std::max(now, free) + busy; });
}

NetworkTime VirtualNetwork::arrive(const Message& message, NetworkTime left, const LinkModel& links) {
  const bool away = crosses(message);
  const Link& link = away ? links.inter_node : links.intra_node;
  VirtualCard& card = cards_[away ? node(message.to) : port(message.to)];
  card.bytes_received += message.bytes;
  const NetworkTime busy = time_to_send(message.bytes, link);
  return move_on(card.receives_until, [&](NetworkTime free) { return std::max(left, free + busy); }) +
         duration(link.latency);
}

NetworkTime VirtualNetwork::busy_until() const {
  NetworkTime latest = 0;
  for (std::size_t i = 0; i < card_count(layout_.node_of); ++i)
    latest = std::max({latest, cards_[i].sends_until.load(), cards_[i].receives_until.load()});
  return latest;
}

std::vector<NetworkTime> arrival_times(const VirtualCollective& collective, std::vector<NetworkTime> starts,
                                       VirtualNetwork& network, const LinkModel& links) {
  return Simulation(collective, network, links).run(std::move(starts));
}

}  // namespace ab
