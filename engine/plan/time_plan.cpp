// SPDX-License-Identifier: MIT
#include "engine/plan/time_plan.h"

#include <algorithm>

namespace ab {
namespace {

constexpr double kBackwardShare = 2.0 / 3;

double hidden_seconds(const PlannedSteps& steps, const Ledger& ledger, const LinkModel& links, double batch_seconds) {
  if (batch_seconds == 0) return 0;
  const LinkModel no_latencies{{0, links.inter_node.bandwidth}, {0, links.intra_node.bandwidth}};
  const double backward = kBackwardShare * batch_seconds;
  double gradients = 0;
  for (const PlannedBucket& bucket : steps.buckets) gradients += static_cast<double>(bucket.gradients);
  double ready = 0, sent = 0, arrived = 0, all_by_themselves = 0;
  for (const PlannedBucket& bucket : steps.buckets) {
    const Route route = ledger.route(Collective::all_reduce, steps.group, bucket.bytes);
    const double alone = links.seconds(Collective::all_reduce, route, 1, bucket.bytes);
    const double sending = route.algorithm == AllReduce::library
                               ? alone  // the next collective waits for it (nccl_comm.h)
                               : no_latencies.seconds(Collective::all_reduce, route, 1, bucket.bytes);
    ready += backward * static_cast<double>(bucket.gradients) / gradients;
    sent = std::max(sent, ready) + sending;
    arrived = std::max(arrived, sent + alone - sending);
    all_by_themselves += alone;
  }
  return static_cast<double>(steps.steps) * (all_by_themselves - std::max(0.0, arrived - backward));
}

double hidden_seconds(const PlannedFlights& flights, const Ledger& ledger, const LinkModel& links,
                      double batch_seconds) {
  const Route route = ledger.route(Collective::all_reduce, flights.group, flights.bytes);
  if (route.algorithm == AllReduce::library) return 0;
  return static_cast<double>(flights.times) * std::min(static_cast<double>(flights.batches) * batch_seconds,
                                                       links.seconds(Collective::all_reduce, route, 1, flights.bytes));
}

std::map<std::string, PhaseTime> time_of_class(const RankClass& ranks, const LinkModel& links, double batch_seconds) {
  std::map<std::string, PhaseTime> times;
  for (const auto& [key, entry] : ranks.ledger.entries())
    times[key.phase].communication += links.seconds(key.collective, key.route, entry.calls, entry.payload_bytes);
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
