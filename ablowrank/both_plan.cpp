// SPDX-License-Identifier: MIT
#include "ablowrank/both_plan.h"

#include <algorithm>
#include <map>

#include "ablowrank/both_strategy.h"
#include "ablowrank/cut.h"
#include "ablowrank/split.h"

namespace ab {
namespace {

constexpr std::int64_t kFloatBytes = 4, kDoubleBytes = 8, kRankBytes = 8;

bool is_factored(const Weight& weight, std::int64_t r) { return r < weight.n() && factors_are_smaller(weight, r); }

/// Elements of every trained parameter, in forward order, with weights of these ranks.
std::vector<std::int64_t> trained_elements(const AbSizes& sizes) {
  std::vector<std::int64_t> elements;
  for (std::size_t i = 0; i < sizes.dense.params.size(); ++i) {
    const ModelSizes::Parameter& p = sizes.dense.params[i];
    const auto weight = sizes.owner[i];
    if (weight && is_factored(*sizes.eligible[*weight], sizes.cut.at_the_end[*weight])) {
      elements.push_back(sizes.factor_elements(*weight, Factor::a, sizes.cut.at_the_end[*weight]));
      elements.push_back(sizes.factor_elements(*weight, Factor::b, sizes.cut.at_the_end[*weight]));
    } else if (p.trainable) {
      elements.push_back(p.elements);
    }
  }
  return elements;
}

/// The largest rank whose factors are smaller than the weight.
std::int64_t largest_rank(const Weight& weight) {
  const std::int64_t both = weight.out() + weight.in();
  return std::min(weight.n() - 1, (weight.out() * weight.in() + both - 1) / both - 1);
}

/// `at_most`: weights that stay dense are counted as if they were sent as large as factors can be.
void count_cut(const AbSizes& sizes, const AbOptions& options, const PlannedRun& run, bool at_most,
               TrafficCounter& counter) {
  counter.set_phase("split");
  const std::vector<Weight*>& weights = sizes.eligible;
  const std::vector<int> owners = assign_owners(weights, run.world_size);
  std::int64_t worth = 0, cut_outputs = 0, ranks_agreed = 0;
  std::map<int, std::int64_t> of_owner;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const Weight& weight = *weights[i];
    worth += worth_elements(weight);
    if (observes(options))
      counter.over_world(Collective::all_reduce, kFloatBytes * OutputMoments::elements(weight.out()), 1);
    const bool factored = is_factored(weight, sizes.cut.at_the_end[i]);
    if (factored || at_most || !options.rank_policy.needs_data()) ++ranks_agreed;
    if (!factored && !at_most) continue;
    cut_outputs += weight.out();
    of_owner[owners[i]] += decomposition_elements(weight, factored ? sizes.cut.at_the_end[i] : largest_rank(weight));
  }
  if (observes(options)) counter.over_world(Collective::all_reduce, kDoubleBytes * worth, 1);
  counter.over_world(Collective::all_reduce, kRankBytes * ranks_agreed, 1);
  for (const auto& [owner, elements] : of_owner) counter.over_world(Collective::broadcast, kFloatBytes * elements, 1);
  if (options.cut.directions == Directions::loss)
    counter.over_world(Collective::all_reduce, kFloatBytes * cut_outputs, 1);
}

MemoryUse memory_of_factors(const AbSizes& sizes, const PlannedRun& run) {
  MemoryUse use = memory_of_no_method(sizes.dense, run);
  for (const ModelSizes::Parameter& p : sizes.dense.params)
    if (!p.trainable) use.weights += kFloatBytes * p.elements;
  for (const std::int64_t elements : trained_elements(sizes)) {
    use.weights += kFloatBytes * elements;
    use.gradients += kFloatBytes * elements;
    use.buckets += bucket_memory(kFloatBytes * elements, run.gradients.dtype);
    use.optimizer += kFloatBytes * run.moments_per_parameter * elements;
  }
  return use;
}

}  // namespace

PlannedRun full_rank_part(const PlannedRun& run, const CutSchedule& schedule) {
  PlannedRun part = run;
  if (schedule.cuts().empty()) return part;
  part.begins_run_of = run.whole_steps();
  part.total_steps = schedule.cuts().front();
  return part;
}

MethodPlan plan_both(Layer& model, const AbOptions& options, const CutSchedule& schedule,
                     const std::vector<std::vector<std::int64_t>>& ranks, bool at_most, MethodPlan plan,
                     const PlannedRun& run) {
  const std::vector<std::int64_t>& cuts = schedule.cuts();
  if (cuts.empty()) return plan;
  plan.phases.push_back("split");
  plan.times["split"] = static_cast<std::int64_t>(cuts.size());
  if (observes(options)) {
    MemoryRow row{"observed", plan.memory.back().use};
    for (const Weight* weight : eligible_weights(model))
      row.use.kept += kFloatBytes * OutputMoments::elements(weight->out());
    plan.memory.push_back(row);
  }
  // Up to the first cut one validation more is counted than there are: that at the end of what was planned.
  const std::int64_t evaluations = run.evaluations() - full_rank_part(run, schedule).evaluations();
  for (std::size_t k = 0; k < cuts.size(); ++k) {
    const AbSizes sizes(model, {{ranks.at(k)}});
    const std::string phase = BothStrategy::phase_name(k, cuts.size());
    const std::int64_t end = k + 1 < cuts.size() ? cuts[k + 1] : run.total_steps;
    const StepCount steps{end - cuts[k], end / run.steps_per_epoch - cuts[k] / run.steps_per_epoch};
    for (RankClass& ranks_alike : plan.traffic.classes) {
      TrafficCounter counter(run, plan.traffic, ranks_alike);
      count_cut(sizes, options, run, at_most, counter);
      counter.steps(phase, steps, trained_elements(sizes), counter.world());
      if (k > 0) continue;
      counter.evaluations(evaluations, evaluations);
      counter.over_world(Collective::all_reduce, sizes.dense.buffers_by_type, evaluations);
    }
    plan.phases.push_back(phase);
    plan.memory.push_back({phase, memory_of_factors(sizes, run)});
    plan.cut_r.clear(), plan.final_r.clear();
    for (std::size_t i = 0; i < sizes.eligible.size(); ++i) {
      const Weight& weight = *sizes.eligible[i];
      plan.cut_r.push_back({weight.name(), weight.m(), weight.n(), sizes.cut.at_the_end[i]});
      if (is_factored(weight, sizes.cut.at_the_end[i]) && options.final_model == FinalModel::factors)
        plan.final_r.push_back(plan.cut_r.back());
    }
  }
  return plan;
}

}  // namespace ab
