// SPDX-License-Identifier: MIT
#include "ablowrank/late_cut_plan.h"

#include <algorithm>
#include <map>

#include "ablowrank/cut.h"
#include "ablowrank/late_cut.h"
#include "ablowrank/split.h"

namespace ab {
namespace {

constexpr std::int64_t kFloatBytes = 4, kDoubleBytes = 8, kRankBytes = 8;

bool is_factored(const Weight& weight, std::int64_t r) { return r < weight.n() && factors_are_smaller(weight, r); }

/// The largest rank whose factors are smaller than the weight.
std::int64_t largest_rank(const Weight& weight) {
  const std::int64_t both = weight.rows() + weight.columns();
  return std::min(weight.n() - 1, (weight.rows() * weight.columns() + both - 1) / both - 1);
}

/// `at_most`: weights that stay dense are counted as if they were sent as large as factors can be.
void count_cut(const AbSizes& sizes, const PlannedRun& run, bool at_most, TrafficCounter& counter) {
  counter.set_phase("split");
  const std::vector<Weight*>& weights = sizes.eligible;
  const std::vector<int> owners = assign_owners(weights, true, run.world_size);
  std::int64_t sensitivity = 0, cut_outputs = 0, ranks_agreed = 0;
  std::map<int, std::int64_t> of_owner;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const Weight& weight = *weights[i];
    sensitivity += sensitivity_elements(weight);
    counter.over_world(Collective::all_reduce, kFloatBytes * OutputMoments::elements(weight.rows()), 1);
    const bool factored = is_factored(weight, sizes.cut.at_the_end[i]);
    if (!factored && !at_most) continue;
    ++ranks_agreed;
    cut_outputs += weight.outputs();
    of_owner[owners[i]] += decomposition_elements(weight, factored ? sizes.cut.at_the_end[i] : largest_rank(weight));
  }
  counter.over_world(Collective::all_reduce, kDoubleBytes * sensitivity, 1);
  counter.over_world(Collective::all_reduce, kRankBytes * ranks_agreed, 1);
  for (const auto& [owner, elements] : of_owner) counter.over_world(Collective::broadcast, kFloatBytes * elements, 1);
  counter.over_world(Collective::all_reduce, kFloatBytes * cut_outputs, 1);
}

/// A dense model whose weights have factors of some ranks as long as this lives; what is in them does not count.
class WithFactors {
 public:
  explicit WithFactors(const AbSizes& sizes) {
    for (std::size_t i = 0; i < sizes.eligible.size(); ++i) {
      Weight& weight = *sizes.eligible[i];
      const std::int64_t r = sizes.cut.at_the_end[i];
      if (!is_factored(weight, r)) continue;
      weight.factorise(Tensor({weight.rows(), r}), Tensor({r, weight.columns()}), Weight::Mode::train_both);
      factored_.push_back(&weight);
    }
  }
  ~WithFactors() {
    for (Weight* weight : factored_) weight->restore(Tensor(weight->shape()));
  }
  WithFactors(const WithFactors&) = delete;
  WithFactors& operator=(const WithFactors&) = delete;

 private:
  std::vector<Weight*> factored_;
};

/// `plan`, and then `next`.
void go_on_with(const MethodPlan& next, MethodPlan& plan) {
  AB_CHECK(
      plan.traffic.classes.size() == 1 && next.traffic.classes.size() == 1,
      "--method late-cut: ranks that do not fill all nodes alike cannot be planned; give a --local.node-size that divides the "
      "number of ranks");
  plan.traffic.classes[0].go_on_with(next.traffic.classes[0]);
  plan.memory.insert(plan.memory.end(), next.memory.begin(), next.memory.end());
  plan.traffic.counted += next.traffic.counted;
}

/// The steps after cut number `index`, the first of them 0.
PlannedRun low_rank_part(const PlannedRun& run, const CutSchedule& schedule, std::size_t index) {
  const std::vector<std::int64_t>& cuts = schedule.cuts();
  PlannedRun part = run;
  part.part = {cuts[index], run.whole_steps(), LateCutStrategy::phase_name(index, cuts.size())};
  if (index + 1 < cuts.size()) part.total_steps = cuts[index + 1];
  return part;
}

PlannedRun full_rank_part(const PlannedRun& run, const CutSchedule& schedule) {
  PlannedRun part = run;
  if (schedule.cuts().empty()) return part;
  part.part.whole_steps = run.whole_steps();
  part.total_steps = schedule.cuts().front();
  return part;
}

}  // namespace

MethodPlan plan_late_cut(Layer& model, const CutSchedule& schedule, const std::vector<std::vector<std::int64_t>>& ranks,
                         bool at_most, const LateCutPlanners& planners, const PlannedRun& run) {
  MethodPlan plan = planners.full_rank(model, full_rank_part(run, schedule));
  const std::size_t cuts = schedule.cuts().size();
  if (cuts == 0) return plan;
  plan.phases.push_back("split");
  plan.times["split"] = static_cast<std::int64_t>(cuts);
  MemoryRow observed{"observed", plan.memory.back().use};
  for (const Weight* weight : eligible_weights(model))
    observed.use.kept += kFloatBytes * OutputMoments::elements(weight->rows());
  plan.memory.push_back(observed);
  for (std::size_t k = 0; k < cuts; ++k) {
    const AbSizes sizes(model, {{ranks.at(k)}});
    TrafficCounter counter(run, plan.traffic, plan.traffic.classes[0]);
    count_cut(sizes, run, at_most, counter);
    const PlannedRun part = low_rank_part(run, schedule, k);
    MethodPlan next = [&] {
      const WithFactors factors(sizes);
      return planners.low_rank(model, part);
    }();
    for (MemoryRow& row : next.memory)  // averaged weights are dense ones
      row = {part.part.phase, row.use}, row.use.average = memory_of_no_method(sizes.dense, run).average;
    go_on_with(next, plan);
    plan.phases.push_back(part.part.phase);
    plan.cut_r.clear(), plan.final_r.clear();
    for (std::size_t i = 0; i < sizes.eligible.size(); ++i) {
      const Weight& weight = *sizes.eligible[i];
      plan.cut_r.push_back({weight.name(), weight.m(), weight.n(), sizes.cut.at_the_end[i]});
      if (is_factored(weight, sizes.cut.at_the_end[i])) plan.final_r.push_back(plan.cut_r.back());
    }
  }
  return plan;
}

}  // namespace ab
