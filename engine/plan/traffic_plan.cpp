// SPDX-License-Identifier: MIT
#include "engine/plan/traffic_plan.h"

#include <numeric>

namespace ab {
namespace {

constexpr const char* kEvaluation = "evaluation";

}  // namespace

std::vector<PlannedBucket> planned_buckets(const std::vector<std::int64_t>& elements, const PlannedRun& run) {
  std::vector<std::int64_t> bytes;
  std::vector<PlannedBucket> buckets;
  for (auto it = elements.rbegin(); it != elements.rend(); ++it) bytes.push_back(run.wire_bytes(*it));
  std::size_t begin = 0;
  for (const std::size_t end : bucket_ends(bytes, run.gradients.bucket_bytes)) {
    const auto at = [&](std::size_t i) { return bytes.begin() + static_cast<std::ptrdiff_t>(i); };
    buckets.push_back({.bytes = std::accumulate(at(begin), at(end), std::int64_t{0}),
                       .gradients = static_cast<std::int64_t>(end - begin)});
    begin = end;
  }
  return buckets;
}

void RankClass::go_on_with(const RankClass& then) {
  ledger.merge(then.ledger);
  steps.insert(steps.end(), then.steps.begin(), then.steps.end());
  flights.insert(flights.end(), then.flights.begin(), then.flights.end());
  at_once.insert(then.at_once.begin(), then.at_once.end());
}

TrafficPlan plan_for_equal_ranks(const PlannedRun& run) {
  TrafficPlan plan;
  const Ledger empty(consecutive_nodes(run.world_size, run.ranks_per_node), run.wiring);
  plan.classes.push_back({.count = run.world_size, .ledger = empty});
  plan.class_of_rank.assign(static_cast<std::size_t>(run.world_size), 0);
  return plan;
}

TrafficPlan plan_for_nodes(const PlannedRun& run, const NodeLayout& layout) {
  const Ledger empty(consecutive_nodes(run.world_size, run.ranks_per_node), run.wiring);
  TrafficPlan plan;
  std::map<Route, int> known;
  for (int node = 0; node < layout.nodes(); ++node) {
    const Route route = route_of(Collective::all_reduce, AllReduce::direct, empty.layout_of(layout.members_of(node)));
    const auto [at, is_new] = known.try_emplace(route, static_cast<int>(plan.classes.size()));
    if (is_new) plan.classes.push_back({.first = layout.first_of(node), .ledger = empty});
    plan.classes[static_cast<std::size_t>(at->second)].count += layout.size_of(node);
    plan.class_of_rank.insert(plan.class_of_rank.end(), static_cast<std::size_t>(layout.size_of(node)), at->second);
  }
  return plan;
}

TrafficCounter::TrafficCounter(const PlannedRun& run, TrafficPlan& plan, RankClass& ranks)
    : run_(run), plan_(plan), ranks_(ranks) {
  world_.ranks.resize(static_cast<std::size_t>(run.world_size));
  std::iota(world_.ranks.begin(), world_.ranks.end(), 0);
}

void TrafficCounter::count(Collective what, const std::string& label, const std::vector<int>& members,
                           std::int64_t bytes, std::int64_t times) {
  ++plan_.counted;
  ranks_.ledger.count(what, label, members, bytes, times);
}

void TrafficCounter::count_extras(const std::vector<ExtraCollective>& extras, const RingMembers& gradients,
                                  std::int64_t times) {
  for (const ExtraCollective& extra : extras) {
    const RingMembers& members = extra.over == ExtraCollective::Over::gradients ? gradients : world_;
    if (static_cast<int>(members.ranks.size()) < extra.least_ranks) continue;
    const std::string phase = ranks_.ledger.phase();
    if (!extra.phase.empty()) ranks_.ledger.set_phase(extra.phase);
    const RingMembers labelled{members.ranks, extra.label.empty() ? members.label : extra.label.c_str()};
    if (extra.waited_for > 0) in_flight(labelled, extra.bytes, extra.times * times, extra.waited_for);
    else over(labelled, extra.what, extra.bytes, extra.times * times);
    ranks_.ledger.set_phase(phase);
  }
}

void TrafficCounter::over_world(Collective what, std::int64_t bytes, std::int64_t times) {
  over(world_, what, bytes, times);
}

void TrafficCounter::all_reduce_by(AllReduce algorithm, std::int64_t bytes, std::int64_t times) {
  const AllReduce before = ranks_.ledger.use_all_reduce(algorithm);
  over_world(Collective::all_reduce, bytes, times);
  ranks_.ledger.use_all_reduce(before);
}

void TrafficCounter::over(const RingMembers& members, Collective what, std::int64_t bytes, std::int64_t times) {
  if (members.at_once > 1) ranks_.at_once[members.label] = members.at_once;
  if (bytes > 0 && times > 0) count(what, members.label, members.ranks, bytes, times);
}

void TrafficCounter::in_flight(const RingMembers& members, std::int64_t bytes, std::int64_t times, std::int64_t steps) {
  over(members, Collective::all_reduce, bytes, times);
  if (bytes > 0 && times > 0 && steps > 0)
    ranks_.flights.push_back(
        {ranks_.ledger.phase(), times, ranks_.ledger.layout_of(members.ranks), bytes, steps * run_.micro_batches});
}

void TrafficCounter::over_world(Collective what, const std::map<DType, std::int64_t>& elements, std::int64_t times) {
  for (const auto& [dtype, number] : elements)
    over_world(what, number * static_cast<std::int64_t>(size_of(dtype)), times);
}

void TrafficCounter::setup(const ModelSizes& sizes) {
  if (run_.part.first_step > 0) return;
  over_world(Collective::broadcast, sizes.model_by_type, 1);
  count_extras(run_.at_setup, world_, 1);
}

void TrafficCounter::steps(const std::string& phase, const StepCount& done, const std::vector<std::int64_t>& gradients,
                           const RingMembers& members) {
  steps_of_buckets(phase, done, planned_buckets(gradients, run_), members);
}

void TrafficCounter::steps_of_buckets(const std::string& phase, const StepCount& done,
                                      std::vector<PlannedBucket> buckets, const RingMembers& members,
                                      std::vector<PlannedCollective> after_backward) {
  if (done.steps == 0) return;
  set_phase(phase);
  std::erase_if(after_backward, [](const PlannedCollective& empty) { return empty.bytes == 0; });
  PlannedSteps planned{ranks_.ledger.phase(), done.steps, ranks_.ledger.layout_of(members.ranks), std::move(buckets),
                       std::move(after_backward)};
  for (const PlannedBucket& bucket : planned.buckets)
    count(Collective::all_reduce, members.label, members.ranks, bucket.bytes, done.steps);
  for (const auto& [what, bytes] : planned.after_backward) over(members, what, bytes, done.steps);
  count_extras(run_.every_step, members, done.steps);
  count_extras(run_.every_micro_batch, members,
               run_.micro_batches * (done.steps - done.last_of_epoch) + run_.last_micro_batches * done.last_of_epoch);
  ranks_.steps.push_back(std::move(planned));
}

void TrafficCounter::evaluations() {
  ranks_.ledger.set_phase(kEvaluation);
  count_extras(run_.every_evaluation, world_, run_.evaluations());
  count_extras(run_.every_evaluation_but_last, world_, run_.evaluations() - (run_.ends() ? 1 : 0));
}

}  // namespace ab
