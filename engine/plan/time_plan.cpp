// SPDX-License-Identifier: MIT
#include "engine/plan/time_plan.h"

#include <algorithm>

namespace ab {
namespace {

constexpr double kBackwardShare = 2.0 / 3;

double hidden_seconds(const PlannedSteps& steps, const Ledger& ledger, const LinkModel& links, double batch_seconds) {
  if (batch_seconds == 0) return 0;
  const auto seconds = [&](const LinkModel& model, const PlannedCollective& c) {
    return model.seconds(c.what, ledger.route(c.what, steps.group, c.bytes), 1, c.bytes);
  };
  // A library's collectives wait for each other (nccl_comm.h).
  const bool in_turn = ledger.route(Collective::all_reduce, steps.group, 0).algorithm == AllReduce::library;
  const LinkModel no_latencies{{0, links.inter_node.bandwidth}, {0, links.intra_node.bandwidth}};
  const double backward = kBackwardShare * batch_seconds;
  double gradients = 0, full = 0;
  for (const PlannedBucket& bucket : steps.buckets) gradients += static_cast<double>(bucket.gradients);
  double sent = 0, arrived = 0, all = 0;
  for (const PlannedBucket& bucket : steps.buckets) {
    const PlannedCollective exchange{.bytes = bucket.bytes};
    const double alone = seconds(links, exchange), sending = in_turn ? alone : seconds(no_latencies, exchange);
    full += static_cast<double>(bucket.gradients);
    sent = std::max(sent, backward * (full / gradients)) + sending;
    arrived = std::max(arrived, sent + alone - sending);
    all += alone;
  }
  double meanwhile = 0;
  for (const PlannedCollective& exchange : steps.after_backward) meanwhile += seconds(links, exchange);
  const double exposed = std::max({0.0, sent - backward, arrived - backward - meanwhile});
  return static_cast<double>(steps.steps) * (all - exposed);
}

double hidden_seconds(const PlannedFlights& flights, const Ledger& ledger, const LinkModel& links,
                      double batch_seconds) {
  const Route route = ledger.route(Collective::all_reduce, flights.group, flights.bytes);
  if (route.algorithm == AllReduce::library) return 0;  // the next collective waits for it (nccl_comm.h)
  return static_cast<double>(flights.times) * std::min(static_cast<double>(flights.batches) * batch_seconds,
                                                       links.seconds(Collective::all_reduce, route, 1, flights.bytes));
}

std::map<std::string, PhaseTime> time_of_class(const RankClass& ranks, const LinkModel& links, double batch_seconds) {
  std::map<std::string, PhaseTime> times;
  for (const auto& [key, entry] : ranks.ledger.entries()) {
    LinkModel shared = links;
    if (const auto at = ranks.at_once.find(key.group); at != ranks.at_once.end())
      shared.inter_node.bandwidth /= at->second;
    times[key.phase].communication += shared.seconds(key.collective, key.route, entry.calls, entry.payload_bytes);
  }
  for (const PlannedSteps& steps : ranks.steps)
    times[steps.phase].hidden += hidden_seconds(steps, ranks.ledger, links, batch_seconds);
  for (const PlannedFlights& flights : ranks.flights)
    times[flights.phase].hidden += hidden_seconds(flights, ranks.ledger, links, batch_seconds);
  return times;
}

}  // namespace

std::map<std::string, PhaseTime> plan_time(const TrafficPlan& plan, const LinkModel& links, double batch_seconds) {
  std::map<std::string, PhaseTime> slowest;
  for (const RankClass& ranks : plan.classes)
    for (const auto& [phase, time] : time_of_class(ranks, links, batch_seconds)) {
      const auto [at, is_new] = slowest.try_emplace(phase, time);
      if (!is_new && time.exposed() > at->second.exposed()) at->second = time;
    }
  return slowest;
}

}  // namespace ab
