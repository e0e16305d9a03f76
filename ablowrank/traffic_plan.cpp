// SPDX-License-Identifier: MIT
#include "ablowrank/traffic_plan.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include "ablowrank/model_sizes.h"
#include "ablowrank/moments.h"
#include "ablowrank/split.h"
#include "engine/sync/gradient_buckets.h"
#include "engine/sync/replica_check.h"

namespace ab {
namespace {

constexpr std::int64_t kFloatBytes = 4, kRankBytes = 8;

/// The payloads of the buckets that gradients of these sizes fill.
std::vector<std::int64_t> bucket_payloads(const std::vector<std::int64_t>& elements, const PlannedRun& run) {
  std::vector<std::int64_t> bytes, payloads;
  for (auto it = elements.rbegin(); it != elements.rend(); ++it)
    bytes.push_back(*it * run.gradient_element_bytes);
  std::size_t begin = 0;
  for (const std::size_t end : bucket_ends(bytes, run.bucket_bytes)) {
    const auto at = [&](std::size_t i) { return bytes.begin() + static_cast<std::ptrdiff_t>(i); };
    payloads.push_back(std::accumulate(at(begin), at(end), std::int64_t{0}));
    begin = end;
  }
  return payloads;
}

/// Counts what the ranks of one class do.
class ClassCounter {
 public:
  ClassCounter(const ModelSizes& sizes, const PlannedRun& run, const std::vector<RankGroup>& groups,
               RankClass& ranks, std::int64_t& counted)
      : sizes_(sizes),
        run_(run),
        groups_(groups),
        ranks_(ranks),
        counted_(counted),
        world_(static_cast<std::size_t>(run.world_size)) {
    std::iota(world_.begin(), world_.end(), 0);
    if (!ranks.group) return;
    group_.resize(static_cast<std::size_t>(ranks.group->size));
    std::iota(group_.begin(), group_.end(), ranks.group->first);
  }

  void count_run(const Timetable& table) {
    broadcast_model();
    count_steps(run_.ab ? name_of(Phase::warmup) : "full", nullptr, table.warmup);
    count_steps(name_of(Phase::rebound), nullptr, table.rebound);
    for (const LowRankStage& stage : table.low_rank) {
      split(stage.cut, stage.splits);
      count_steps(name_of(Phase::low_rank), &stage, stage.steps);
      sync(stage, stage.syncs);
      set_phase("evaluation");
      over_world(Collective::all_reduce, kFloatBytes * joined_elements(stage, false), stage.evaluations);
    }
    set_phase("evaluation");
    average_buffers(table.full_rank_evaluations);
    count_extras(run_.every_evaluation, false, table.evaluations());
    count_extras(run_.every_evaluation_but_last, false, table.evaluations() - 1);
    if (table.last_stage >= 0)
      finish(table.low_rank[static_cast<std::size_t>(table.last_stage)]);
    else
      average_buffers(1);
  }

 private:
  void set_phase(const std::string& phase) { ranks_.ledger.set_phase(phase); }

  void count(Collective what, const std::string& label, const std::vector<int>& members, std::int64_t bytes,
             std::int64_t times) {
    ++counted_;
    ranks_.ledger.count(what, label, members, bytes, times);
  }
  void over_world(Collective what, std::int64_t bytes, std::int64_t times) {
    if (bytes > 0) count(what, "world", world_, bytes, times);
  }
  void count_extras(const std::vector<ExtraCollective>& extras, bool low_rank, std::int64_t times) {
    for (const ExtraCollective& extra : extras) {
      const bool in_group = low_rank && extra.over == ExtraCollective::Over::gradients;
      const std::vector<int>& members = in_group ? group_ : world_;
      if (static_cast<int>(members.size()) < extra.least_ranks) continue;
      const std::string phase = ranks_.ledger.phase();
      if (!extra.phase.empty()) set_phase(extra.phase);
      const std::string label = !extra.label.empty() ? extra.label : in_group ? "group" : "world";
      count(extra.what, label, members, extra.bytes, extra.times * times);
      set_phase(phase);
    }
  }

  void broadcast_model() {
    for (const auto& [dtype, elements] : sizes_.model_by_type)
      over_world(Collective::broadcast, elements * static_cast<std::int64_t>(size_of(dtype)), 1);
    count_extras(run_.at_setup, false, 1);
  }

  void average_buffers(std::int64_t times) {
    for (const auto& [dtype, elements] : sizes_.buffers_by_type)
      over_world(Collective::all_reduce, elements * static_cast<std::int64_t>(size_of(dtype)), times);
  }

  /// `stage` nullptr: at full rank.
  void count_steps(const std::string& phase, const LowRankStage* stage, const StepCount& done) {
    const std::int64_t steps = done.steps;
    if (steps == 0) return;
    set_phase(phase);
    std::vector<std::int64_t> elements;
    for (const PlannedParam& p : sizes_.params) {
      if (!p.trainable) continue;
      if (!stage || !p.weight)
        elements.push_back(p.elements);
      else if (run_.ab->gradient_scope == GradientScope::group)
        elements.push_back(sizes_.factor_elements(*p.weight, trained(*stage), r(*p.weight, *stage)));
    }
    const std::vector<int>& members = stage ? group_ : world_;
    PlannedSteps planned{phase, steps, static_cast<int>(members.size()),
                         ranks_.ledger.crossing_links(members), bucket_payloads(elements, run_)};
    for (const std::int64_t bytes : planned.bucket_bytes)
      count(Collective::all_reduce, stage ? "group" : "world", members, bytes, steps);
    count_extras(run_.every_step, stage != nullptr, steps);
    count_extras(run_.every_micro_batch, stage != nullptr,
                 run_.micro_batches * (steps - done.last_of_epoch) + run_.last_micro_batches * done.last_of_epoch);
    ranks_.steps.push_back(std::move(planned));
  }

  void split(bool cut, std::int64_t times) {
    set_phase("split");
    const auto weights = static_cast<std::int64_t>(sizes_.eligible.size());
    over_world(Collective::all_reduce, kRankBytes * weights, times);
    std::map<int, std::int64_t> of_owner;
    const std::vector<int> owners = assign_owners(sizes_.eligible, run_.world_size);
    for (std::size_t i = 0; i < owners.size(); ++i)
      of_owner[owners[i]] += decomposition_elements(*sizes_.eligible[i], sizes_.r(i, cut));
    for (const auto& [owner, elements] : of_owner)
      over_world(Collective::broadcast, kFloatBytes * elements, times);
  }

  void sync(const LowRankStage& stage, std::int64_t times) {
    set_phase("sync");
    over_world(Collective::all_reduce, kFloatBytes * joined_elements(stage, true), times);
    if (run_.world_size > 1) over_world(Collective::all_gather, kReplicaHashBytes * run_.world_size, times);
  }

  void finish(const LowRankStage& stage) {
    sync(stage, 1);
    if (run_.ab->final_model == FinalModel::factors) split(true, 1);
  }

  /// What the weighted sum of a synchronisation holds, with or without optimizer state.
  std::int64_t joined_elements(const LowRankStage& stage, bool with_moments) const {
    std::int64_t shared = sizes_.shared, factors = 0;
    const std::int64_t cycle = stage.odd;
    const Trainers trainers{trainers_of(groups_, Factor::a, cycle), trainers_of(groups_, Factor::b, cycle),
                            run_.world_size};
    for (std::size_t i = 0; i < sizes_.eligible.size(); ++i) {
      const Weight& weight = *sizes_.eligible[i];
      factors +=
          join_terms(run_.ab->sync, trainers, weight.transposed()).elements(weight, sizes_.r(i, stage.cut));
    }
    if (!with_moments) return shared + factors;
    shared += run_.moments_per_parameter * sizes_.shared_trained;
    return shared + (moments_can_join(*run_.ab, run_.moments_per_parameter) ? 2 : 1) * factors;
  }

  Factor trained(const LowRankStage& stage) const { return ranks_.group->trained_in_cycle(stage.odd); }
  std::int64_t r(std::size_t weight, const LowRankStage& stage) const { return sizes_.r(weight, stage.cut); }

  const ModelSizes& sizes_;
  const PlannedRun& run_;
  const std::vector<RankGroup>& groups_;
  RankClass& ranks_;
  std::int64_t& counted_;
  std::vector<int> world_, group_;
};

/// One class for every kind of group, in rank order.
std::vector<RankClass> make_classes(const PlannedRun& run, const std::vector<RankGroup>& groups,
                                    std::vector<int>& class_of_rank) {
  const Ledger empty(consecutive_nodes(run.world_size, run.ranks_per_node));
  if (groups.empty()) {
    class_of_rank.assign(static_cast<std::size_t>(run.world_size), 0);
    return {{run.world_size, 0, std::nullopt, empty}};
  }
  std::vector<RankClass> classes;
  std::map<std::tuple<Factor, int, int>, int> known;
  for (const RankGroup& group : groups) {
    std::vector<int> members(static_cast<std::size_t>(group.size));
    std::iota(members.begin(), members.end(), group.first);
    const auto [at, is_new] = known.try_emplace({group.trains, group.size, empty.crossing_links(members)},
                                                static_cast<int>(classes.size()));
    if (is_new) classes.push_back({0, group.first, group, empty});
    classes[static_cast<std::size_t>(at->second)].count += group.size;
    class_of_rank.insert(class_of_rank.end(), members.size(), at->second);
  }
  return classes;
}

}  // namespace

TrafficPlan plan_traffic(Layer& model, const PlannedRun& run) {
  AB_CHECK(run.world_size >= 1, "a run needs at least one rank, got {}", run.world_size);
  const ModelSizes sizes(model, run.cut_ranks, run.ab.has_value());
  std::vector<RankGroup> groups;
  if (run.ab) {
    run.ab->validate();
    groups = make_groups(run.world_size, run.ab->group_size, run.ab->sync == SyncMode::only_b);
  }
  TrafficPlan plan;
  plan.timetable = make_timetable(run.ab ? &run.ab->schedule : nullptr, run.total_steps, run.steps_per_epoch,
                                  run.eval_every);
  plan.classes = make_classes(run, groups, plan.class_of_rank);
  for (RankClass& ranks : plan.classes)
    ClassCounter(sizes, run, groups, ranks, plan.counted).count_run(plan.timetable);
  return plan;
}

}  // namespace ab
