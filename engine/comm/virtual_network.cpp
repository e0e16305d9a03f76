// SPDX-License-Identifier: MIT
#include "engine/comm/virtual_network.h"

#include <algorithm>

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

}  // namespace ab
