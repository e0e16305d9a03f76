// SPDX-License-Identifier: MIT
#include "ablowrank/ab_plan.h"

#include <algorithm>

#include "ablowrank/split.h"

namespace ab {
namespace {

constexpr std::int64_t kFloatBytes = 4;

std::vector<MemoryRow> memory_rows(const AbSizes& sizes, const AbOptions& options, const PlannedRun& run,
                                   const Timetable& table) {
  std::vector<MemoryRow> rows{{"full rank", memory_at_full_rank(sizes.dense, run)}};
  bool trains[2] = {false, false}, alternates = false;
  for (const RankGroup& group : make_groups(run.world_size, options.group_size, options.sync == SyncMode::only_b)) {
    alternates |= group.alternates;
    trains[static_cast<int>(group.trains)] = true;
  }
  for (const bool cut : {false, true})
    for (const Factor factor : {Factor::a, Factor::b}) {
      if (!alternates && !trains[static_cast<int>(factor)]) continue;
      MemoryUse most;  // of all splits
      for (const LowRankStage& stage : table.low_rank) {
        if ((stage.split != AbSizes::kUncut) != cut) continue;
        const MemoryUse use = memory_with_factors(sizes, options, run, factor, stage.split, alternates);
        if (use.total() > most.total()) most = use;
      }
      if (most.total() > 0)
        rows.push_back({fmt::format("low-rank{}, {}", cut ? "" : " uncut", factor == Factor::a ? "A" : "B"), most});
    }
  return rows;
}

}  // namespace

MemoryUse memory_with_factors(const AbSizes& sizes, const AbOptions& options, const PlannedRun& run, Factor factor,
                              int split, bool alternates) {
  MemoryUse use = memory_of_no_method(sizes.dense, run);
  const auto groups = make_groups(run.world_size, options.group_size, options.sync == SyncMode::only_b);
  const bool exchanges = std::ranges::any_of(groups, [](const RankGroup& group) { return group.size > 1; });
  for (std::size_t i = 0; i < sizes.dense.params.size(); ++i) {
    const ModelSizes::Parameter& p = sizes.dense.params[i];
    std::int64_t held = p.elements, trained = p.trainable ? p.elements : 0, with_state = trained;
    bool exchanged = exchanges;
    if (const auto weight = sizes.owner[i]) {
      const std::int64_t r = sizes.r(*weight, split);
      held = sizes.factor_elements(*weight, Factor::a, r) + sizes.factor_elements(*weight, Factor::b, r);
      trained = with_state = sizes.factor_elements(*weight, factor, r);
      exchanged = exchanges && options.gradient_scope == GradientScope::group;
      if (options.moments == MomentCarry::truncate) with_state = p.elements + (alternates ? held : trained);
      if (options.rest == Rest::keep) use.kept += kFloatBytes * p.elements;
      // The split's U, sigma and V; the frozen factor is one of them (Gauge::orthonormal).
      if (options.sync == SyncMode::tangent) use.kept += kFloatBytes * (trained + r);
    }
    use.weights += kFloatBytes * held;
    use.gradients += kFloatBytes * trained;
    if (exchanged) use.buckets += bucket_memory(kFloatBytes * trained, run.gradients.dtype);
    use.optimizer += kFloatBytes * run.moments_per_parameter * with_state;
  }
  return use;
}

MethodPlan plan_ab(Layer& model, const AbOptions& options, CutRanks cut, const PlannedRun& run) {
  const AbSizes sizes(model, std::move(cut));
  const Timetable table = make_timetable(options.schedule, run, sizes.last_split());
  MethodPlan plan{.traffic = plan_ab_traffic(sizes, options, run),
                  .phases = {"warmup", "split", "low-rank", "sync", "rebound"}};
  for (const LowRankStage& stage : table.low_rank)
    plan.times["split"] += stage.splits, plan.times["sync"] += stage.syncs;
  const bool ends_with_factors = table.last_stage >= 0 && options.final_model == FinalModel::factors;
  if (table.last_stage >= 0) ++plan.times["sync"], plan.times["split"] += ends_with_factors;
  plan.memory = memory_rows(sizes, options, run, table);
  for (std::size_t i = 0; i < sizes.eligible.size(); ++i) {
    const Weight& weight = *sizes.eligible[i];
    const std::int64_t last = sizes.cut.at_the_end[i];
    plan.cut_r.push_back({weight.name(), weight.m(), weight.n(), sizes.cut.splits.back()[i]});
    if (ends_with_factors && factors_are_smaller(weight, last))
      plan.final_r.push_back({weight.name(), weight.m(), weight.n(), last});
  }
  return plan;
}

}  // namespace ab
