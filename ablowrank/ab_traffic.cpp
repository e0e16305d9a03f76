// SPDX-License-Identifier: MIT
#include <map>
#include <numeric>
#include <tuple>

#include "ablowrank/ab_plan.h"
#include "ablowrank/groups/join.h"
#include "ablowrank/groups/join_moments.h"
#include "ablowrank/split.h"
#include "engine/sync/replica_check.h"

namespace ab {
namespace {

constexpr std::int64_t kFloatBytes = 4, kRankBytes = 8;

std::vector<int> members_of(const RankGroup& group) {
  std::vector<int> members(static_cast<std::size_t>(group.size));
  std::iota(members.begin(), members.end(), group.first);
  return members;
}

/// Counts what the ranks of one class do; `group` is that of its first rank.
class AbCounter {
 public:
  AbCounter(const AbSizes& sizes, const AbOptions& options, const PlannedRun& run, const std::vector<RankGroup>& groups,
            const RankGroup& group, TrafficCounter counter)
      : sizes_(sizes),
        options_(options),
        run_(run),
        groups_(groups),
        group_(group),
        group_members_{members_of(group), "group"},
        counter_(std::move(counter)) {}

  void count_run(const Timetable& table) {
    counter_.setup(sizes_.dense);
    counter_.steps(name_of(Phase::warmup), table.warmup, sizes_.dense.gradients(), counter_.world());
    counter_.steps(name_of(Phase::rebound), table.rebound, sizes_.dense.gradients(), counter_.world());
    for (const LowRankStage& stage : table.low_rank) {
      split(stage.split, stage.splits);
      counter_.steps(name_of(Phase::low_rank), stage.steps, factor_gradients(stage), group_members_);
      sync(stage, stage.syncs);
      counter_.set_phase("evaluation");
      counter_.over_world(Collective::all_reduce, kFloatBytes * joined_elements(stage, false), stage.evaluations);
    }
    counter_.evaluations();
    counter_.over_world(Collective::all_reduce, sizes_.dense.buffers_by_type, table.full_rank_evaluations);
    if (table.last_stage >= 0) finish(table.low_rank[static_cast<std::size_t>(table.last_stage)]);
    else counter_.over_world(Collective::all_reduce, sizes_.dense.buffers_by_type, 1);
  }

 private:
  std::vector<std::int64_t> factor_gradients(const LowRankStage& stage) const {
    std::vector<std::int64_t> elements;
    for (std::size_t i = 0; i < sizes_.dense.params.size(); ++i) {
      const ModelSizes::Parameter& p = sizes_.dense.params[i];
      if (!p.trainable) continue;
      if (!sizes_.owner[i]) elements.push_back(p.elements);
      else if (options_.gradient_scope == GradientScope::group)
        elements.push_back(sizes_.factor_elements(*sizes_.owner[i], group_.trained_in_cycle(stage.odd),
                                                  sizes_.r(*sizes_.owner[i], stage.split)));
    }
    return elements;
  }

  void split(int number, std::int64_t times) {
    counter_.set_phase("split");
    const auto weights = static_cast<std::int64_t>(sizes_.eligible.size());
    counter_.over_world(Collective::all_reduce, kRankBytes * weights, times);
    std::map<int, std::int64_t> of_owner;
    const std::vector<int> owners = assign_owners(sizes_.eligible, false, run_.world_size);
    for (std::size_t i = 0; i < owners.size(); ++i) {
      const Weight& weight = *sizes_.eligible[i];
      const std::int64_t r = sizes_.r(i, number);
      if (number == AbSizes::kAtTheEnd && !factors_are_smaller(weight, r)) continue;  // it stays dense
      of_owner[owners[i]] += decomposition_elements(weight, r);
    }
    for (const auto& [owner, elements] : of_owner)
      counter_.over_world(Collective::broadcast, kFloatBytes * elements, times);
  }

  void sync(const LowRankStage& stage, std::int64_t times) {
    counter_.set_phase("sync");
    counter_.over_world(Collective::all_reduce, kFloatBytes * joined_elements(stage, true), times);
    if (run_.world_size > 1) counter_.over_world(Collective::all_gather, kReplicaHashBytes * run_.world_size, times);
  }

  void finish(const LowRankStage& stage) {
    sync(stage, 1);
    if (options_.final_model == FinalModel::factors) split(AbSizes::kAtTheEnd, 1);
  }

  /// What the weighted sum of a synchronisation holds, with or without optimizer state.
  std::int64_t joined_elements(const LowRankStage& stage, bool with_moments) const {
    std::int64_t shared = sizes_.shared, factors = 0;
    const std::int64_t cycle = stage.odd;
    const Trainers trainers{trainers_of(groups_, Factor::a, cycle), trainers_of(groups_, Factor::b, cycle),
                            run_.world_size};
    for (std::size_t i = 0; i < sizes_.eligible.size(); ++i) {
      const Weight& weight = *sizes_.eligible[i];
      factors += join_terms(options_.sync, trainers, weight.transposed()).elements(weight, sizes_.r(i, stage.split));
    }
    if (!with_moments) return shared + factors;
    shared += run_.moments_per_parameter * sizes_.shared_trained;
    return shared + (moments_can_join(options_, run_.moments_per_parameter) ? 2 : 1) * factors;
  }

  const AbSizes& sizes_;
  const AbOptions& options_;
  const PlannedRun& run_;
  const std::vector<RankGroup>& groups_;
  RankGroup group_;
  RingMembers group_members_;
  TrafficCounter counter_;
};

/// What ranks that train the same factor all the time are called.
const char* kind_of(const RankGroup& group) { return group.alternates ? "" : group.trains == Factor::a ? "A" : "B"; }

/// One class for every kind of group, in rank order; `group_of_class`: the group of its first rank.
TrafficPlan make_classes(const PlannedRun& run, const std::vector<RankGroup>& groups,
                         std::vector<RankGroup>& group_of_class) {
  const Ledger empty(consecutive_nodes(run.world_size, run.ranks_per_node), run.wiring);
  TrafficPlan plan;
  std::map<std::tuple<Factor, int, Route>, int> known;
  for (const RankGroup& group : groups) {
    const std::vector<int> members = members_of(group);
    const Route route = route_of(Collective::all_reduce, AllReduce::direct, empty.layout_of(members));
    const auto [at, is_new] =
        known.try_emplace({group.trains, group.size, route}, static_cast<int>(plan.classes.size()));
    if (is_new) {
      plan.classes.push_back({0, group.first, kind_of(group), empty});
      group_of_class.push_back(group);
    }
    plan.classes[static_cast<std::size_t>(at->second)].count += group.size;
    plan.class_of_rank.insert(plan.class_of_rank.end(), members.size(), at->second);
  }
  return plan;
}

}  // namespace

TrafficPlan plan_ab_traffic(const AbSizes& sizes, const AbOptions& options, const PlannedRun& run) {
  options.validate();
  const std::vector<RankGroup> groups =
      make_groups(run.world_size, options.group_size, options.sync == SyncMode::only_b);
  const Timetable table = make_timetable(options.schedule, run, sizes.last_split());
  std::vector<RankGroup> group_of_class;
  TrafficPlan plan = make_classes(run, groups, group_of_class);
  for (std::size_t i = 0; i < plan.classes.size(); ++i)
    AbCounter(sizes, options, run, groups, group_of_class[i], TrafficCounter(run, plan, plan.classes[i]))
        .count_run(table);
  return plan;
}

}  // namespace ab
