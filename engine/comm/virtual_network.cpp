// SPDX-License-Identifier: MIT
#include "engine/comm/virtual_network.h"

#include <deque>
#include <map>
#include <queue>

#include "engine/comm/collective_call.h"

namespace ab {
namespace {

NetworkTime duration(double seconds) { return static_cast<NetworkTime>(seconds * 1e9); }

/// Sets a clock from where it stands, whoever else does so at the same time; returns where it stands then.
template <class Next> NetworkTime move_on(std::atomic<NetworkTime>& clock, Next next) {
  NetworkTime before = clock.load();
  NetworkTime after = next(before);
  while (!clock.compare_exchange_weak(before, after)) after = next(before);
  return after;
}

/// What the messages of one member of a collective wait for.
class Member {
 public:
  explicit Member(MessageRounds rounds) : rounds_(std::move(rounds)) {}

  const MessageRounds& rounds() const { return rounds_; }
  const Round& round() const { return rounds_.rounds[round_]; }
  bool next_round() { return ++round_ < rounds_.rounds.size(); }
  void first_round() { round_ = 0; }

  NetworkTime done = 0;       // with what it has sent and received of this round
  bool has_sent = false;      // its messages of this round
  std::size_t segment = 0;

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
    for (std::size_t i = 0; i < members_.size(); ++i)
      if (!members_[i].rounds().rounds.empty()) ready_.push({times[i], static_cast<int>(i)});
    while (!ready_.empty()) {
      const auto [now, rank] = ready_.top();
      ready_.pop();
      times[static_cast<std::size_t>(rank)] = now;
      Member& member = members_[static_cast<std::size_t>(rank)];
      if (member.segment < collective_.segments.size()) send_all(member, rank, now);
    }
    return times;
  }

 private:
  std::int64_t bytes_of(const Transfer& transfer, const Member& member) const {
    const std::int64_t bytes = collective_.segments[member.segment];
    return part_of_rank(bytes, transfer.last - 1, member.rounds().parts).end -
           part_of_rank(bytes, transfer.first, member.rounds().parts).begin;
  }

  void send_all(Member& member, int rank, NetworkTime now) {
    member.done = now;
    member.has_sent = true;
    for (const Transfer& send : member.round().sends) {
      const NetworkTime arrival =
          network_.send(world_rank(rank), world_rank(send.peer), bytes_of(send, member), now, links_);
      member.done = std::max(member.done, arrival);
      arrivals_[{rank, send.peer}].push_back(arrival);
    }
    for (const Transfer& send : member.round().sends) receive_all(members_[static_cast<std::size_t>(send.peer)], send.peer);
    receive_all(member, rank);
  }

  /// Ends the round of a member when everything has been sent that it waits for.
  void receive_all(Member& member, int rank) {
    if (!member.has_sent) return;
    for (const Transfer& receive : member.round().receives)
      if (arrivals_[{receive.peer, rank}].empty()) return;
    for (const Transfer& receive : member.round().receives) {
      std::deque<NetworkTime>& from_peer = arrivals_[{receive.peer, rank}];
      member.done = std::max(member.done, from_peer.front());
      from_peer.pop_front();
    }
    member.has_sent = false;
    if (!member.next_round()) ++member.segment, member.first_round();
    ready_.push({member.done, rank});
  }

  int world_rank(int member) const { return collective_.world_ranks[static_cast<std::size_t>(member)]; }

  using Event = std::pair<NetworkTime, int>;  // when a member comes to its next round
  const VirtualCollective& collective_;
  VirtualNetwork& network_;
  const LinkModel& links_;
  std::vector<Member> members_;
  std::map<std::pair<int, int>, std::deque<NetworkTime>> arrivals_;  // by sender and receiver
  std::priority_queue<Event, std::vector<Event>, std::greater<>> ready_;
};

}  // namespace

VirtualNetwork::VirtualNetwork(std::vector<int> node_of_rank, VirtualCard* cards)
    : layout_(node_of_rank), cards_(cards) {}

std::size_t VirtualNetwork::card_count(const std::vector<int>& node_of_rank) {
  return Layout(node_of_rank).members.size() + node_of_rank.size();
}

NetworkTime VirtualNetwork::send(int from, int to, std::int64_t bytes, NetworkTime now, const LinkModel& links) {
  const bool crosses = node(from) != node(to);
  const Link& link = crosses ? links.inter_node : links.intra_node;
  VirtualCard& sender = cards_[crosses ? node(from) : port(from)];
  VirtualCard& receiver = cards_[crosses ? node(to) : port(to)];
  const NetworkTime busy = duration(static_cast<double>(bytes) / link.bandwidth);
  const NetworkTime sent = move_on(sender.sends_until, [&](NetworkTime free) { return std::max(now, free) + busy; });
  const NetworkTime received =
      move_on(receiver.receives_until, [&](NetworkTime free) { return std::max(sent, free + busy); });
  sender.bytes_sent += bytes;
  receiver.bytes_received += bytes;
  return received + duration(link.latency);
}

std::vector<NetworkTime> arrival_times(const VirtualCollective& collective, std::vector<NetworkTime> starts,
                                       VirtualNetwork& network, const LinkModel& links) {
  return Simulation(collective, network, links).run(std::move(starts));
}

}  // namespace ab
