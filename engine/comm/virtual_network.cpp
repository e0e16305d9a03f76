// SPDX-License-Identifier: MIT
#include "engine/comm/virtual_network.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "engine/comm/comm.h"

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

std::int64_t bytes_of(const Transfer& transfer, std::int64_t segment, int parts) {
  return part_of_rank(segment, transfer.last - 1, parts).end - part_of_rank(segment, transfer.first, parts).begin;
}

VirtualNetwork::Message message(const VirtualCollective& collective, int from, int to, std::int64_t bytes) {
  return {collective.world_ranks[static_cast<std::size_t>(from)], collective.world_ranks[static_cast<std::size_t>(to)],
          bytes};
}

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

VirtualTraffic::State::State(const std::vector<int>& node_of_rank)
    : card_count(VirtualNetwork::card_count(node_of_rank)),
      cards(std::make_unique<VirtualCard[]>(card_count)),
      network(node_of_rank, cards.get()) {}

/// From a state of the same ranks all but what its cards have counted.
void VirtualTraffic::State::take(const State& other) {
  flights = other.flights;
  events = other.events;
  for (std::size_t i = 0; i < card_count; ++i) {
    cards[i].sends_until = other.cards[i].sends_until.load();
    cards[i].receives_until = other.cards[i].receives_until.load();
  }
}

VirtualTraffic::VirtualTraffic(const std::vector<int>& node_of_rank)
    : present_(node_of_rank), expected_(node_of_rank) {}

std::int64_t VirtualTraffic::add(VirtualCollective collective) {
  std::vector<MessageRounds> rounds;
  for (int member = 0; member < collective.layout.ranks(); ++member)
    rounds.push_back(message_rounds(collective.what, collective.route, collective.layout, member, collective.root));
  std::vector<Member> members(rounds.size());
  auto plan = std::make_shared<const Plan>(Plan{std::move(collective), std::move(rounds)});
  present_.flights.emplace(next_number_, Flight{std::move(plan), std::move(members), {}});
  return next_number_++;
}

void VirtualTraffic::start(std::int64_t number, int member, NetworkTime now) {
  present_.events.push({now, number, member, -1, 0});
  is_expected_ = false;
}

NetworkTime VirtualTraffic::over(std::int64_t number, int member, NetworkTime now) {
  const auto over_in = [&](const State& state) {
    return state.flights.at(number).members[static_cast<std::size_t>(member)].over;
  };
  present_.run_until(now);
  if (over_in(present_) >= 0) return over_in(present_);
  if (!std::exchange(is_expected_, true)) {
    expected_.take(present_);
    expected_.run_until(std::numeric_limits<NetworkTime>::max());
  }
  AB_ASSERT(over_in(expected_) >= now);  // all members have started
  return over_in(expected_);
}

void VirtualTraffic::forget(std::int64_t number) { present_.flights.erase(number); }

void VirtualTraffic::State::run_until(NetworkTime end) {
  while (!events.empty() && events.top().time <= end) {
    const Event event = events.top();
    events.pop();
    if (event.to >= 0) come_to_receiver(event);
    else begin_round(event);
  }
}

void VirtualTraffic::State::begin_round(const Event& event) {
  Flight& flight = flights.at(event.flight);
  const auto& [collective, rounds] = *flight.plan;
  const auto index = static_cast<std::size_t>(event.member);
  Member& sender = flight.members[index];
  sender.done = event.time;
  if (sender.segment == collective.segments.size() || rounds[index].rounds.empty()) {
    sender.over = event.time;
    return;
  }
  sender.inside_round = true;
  for (const Transfer& send : rounds[index].rounds[sender.round].sends) {
    const std::int64_t bytes = bytes_of(send, collective.segments[sender.segment], rounds[index].parts);
    const NetworkTime left =
        network.leave(message(collective, event.member, send.peer, bytes), event.time, collective.links);
    events.push({left, event.flight, event.member, send.peer, bytes});
    ++sender.sends_under_way;
  }
  end_round(event.flight, event.member);
}

void VirtualTraffic::State::come_to_receiver(const Event& event) {
  Flight& flight = flights.at(event.flight);
  const VirtualCollective& collective = flight.plan->collective;
  const NetworkTime arrival =
      network.arrive(message(collective, event.member, event.to, event.bytes), event.time, collective.links);
  flight.arrivals[{event.member, event.to}].push(arrival);
  Member& sender = flight.members[static_cast<std::size_t>(event.member)];
  sender.done = std::max(sender.done, arrival);
  --sender.sends_under_way;
  end_round(event.flight, event.member);
  end_round(event.flight, event.to);
}

/// If everything that it sends and receives is known to arrive.
void VirtualTraffic::State::end_round(std::int64_t number, int member) {
  Flight& flight = flights.at(number);
  Member& waiting = flight.members[static_cast<std::size_t>(member)];
  if (!waiting.inside_round || waiting.sends_under_way > 0) return;
  const std::vector<Round>& rounds = flight.plan->rounds[static_cast<std::size_t>(member)].rounds;
  const std::vector<Transfer>& receives = rounds[waiting.round].receives;
  for (const Transfer& receive : receives)
    if (!flight.arrivals.contains({receive.peer, member})) return;
  for (const Transfer& receive : receives) {
    const auto from_peer = flight.arrivals.find({receive.peer, member});
    waiting.done = std::max(waiting.done, from_peer->second.front());
    from_peer->second.pop();
    if (from_peer->second.empty()) flight.arrivals.erase(from_peer);
  }
  waiting.inside_round = false;
  if (++waiting.round == rounds.size()) {
    waiting.round = 0;
    ++waiting.segment;
  }
  events.push({waiting.done, number, member, -1, 0});
}

}  // namespace ab
