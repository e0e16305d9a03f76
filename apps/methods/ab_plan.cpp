// SPDX-License-Identifier: MIT
//
// The plans of AB-training and of the late cut, by the ranks r that its settings, a share of the user's, or a trained run tell.
#include <algorithm>

#include "ablowrank/ab_plan.h"
#include "ablowrank/cut.h"
#include "ablowrank/groups/ab_strategy.h"
#include "ablowrank/late_cut_plan.h"
#include "ablowrank/loss_ranks.h"
#include "ablowrank/split.h"
#include "apps/methods/ab.h"
#include "apps/methods/late_cut.h"
#include "apps/methods/method.h"

namespace ab {
namespace {

/// Those of a split of the trained run that --factors-from names.
std::vector<std::int64_t> ranks_of_run(const AssumedR& assumed, const std::vector<LayerRank>& split,
                                       const std::vector<Weight*>& weights) {
  std::vector<std::int64_t> ranks;
  bool any_cut = false;
  for (const Weight* weight : weights) {
    const auto at =
        std::find_if(split.begin(), split.end(), [&](const LayerRank& layer) { return layer.name == weight->name(); });
    AB_CHECK(
        at != split.end() && at->m == weight->m() && at->n == weight->n(),
        "--factors-from {} tells no rank of {} ({}×{}): it is the run of another model, or its factors have another form",
        assumed.run, weight->name(), weight->m(), weight->n());
    ranks.push_back(at->r);
    any_cut |= at->r < at->n;
  }
  AB_CHECK(any_cut || !assumed.as_left || weights.empty(),
           "--factors-from {} describes a model that was left at full rank; give its run folder, whose "
           "metrics.jsonl has the "
           "ranks of its splits",
           assumed.run);
  return ranks;
}

/// The rank r of every weight after a cut.
std::vector<std::int64_t> ranks_of_policy(const RankPolicy& policy, const std::vector<Weight*>& weights) {
  AB_CHECK(policy.kind == RankPolicy::Kind::ratio,
           "the rank policy sigma-cutoff chooses r from the singular values of a trained model; give --ratio, or "
           "--factors-from with a run, to plan with");
  std::vector<std::int64_t> ranks;
  for (const Weight* weight : weights)
    ranks.push_back(policy.choose(std::vector<double>(static_cast<std::size_t>(weight->n()), 1.0)));
  return ranks;
}

/// The ranks after every cut of the trained run that --factors-from names; a weight that it does not list stayed dense.
std::vector<std::vector<std::int64_t>> ranks_of_cuts(const AssumedR& assumed, const std::vector<Weight*>& weights,
                                                     std::size_t cuts) {
  AB_CHECK(assumed.splits.size() == cuts, "--factors-from {}: that run has {} cuts, this one {}", assumed.run,
           assumed.splits.size(), cuts);
  std::vector<std::vector<std::int64_t>> ranks;
  for (std::vector<LayerRank> split : assumed.splits) {
    for (const Weight* weight : weights)
      if (std::none_of(split.begin(), split.end(), [&](const LayerRank& l) { return l.name == weight->name(); }))
        split.push_back({weight->name(), weight->m(), weight->n(), weight->n()});
    ranks.push_back(ranks_of_run(assumed, split, weights));
  }
  return ranks;
}

double sent_bytes(const MethodPlan& plan) { return plan.traffic.classes[0].ledger.total().sent_bytes(); }

}  // namespace

MethodPlan plan_ab_run(const TrainConfig& config, Layer& model, const PlannedRun& run) {
  AbOptions options = ab_options(config);
  keep_at_full_rank(options.always_sync, model);
  if (run.assumed.ratio > 0)
    options.rank_policy.kind = RankPolicy::Kind::ratio, options.rank_policy.ratio = run.assumed.ratio;
  const std::vector<Weight*> eligible = eligible_weights(model);
  if (run.assumed.run.empty()) return plan_ab(model, options, {{ranks_of_policy(options.rank_policy, eligible)}}, run);
  CutRanks ranks;
  for (const std::vector<LayerRank>& split : run.assumed.splits)
    ranks.splits.push_back(ranks_of_run(run.assumed, split, eligible));
  const auto is_cut = [](const LayerRank& layer) { return layer.r < layer.n; };
  if (std::ranges::any_of(run.assumed.final_r, is_cut))  // else that run was left at full rank
    ranks.at_the_end = ranks_of_run(run.assumed, run.assumed.final_r, eligible);
  return plan_ab(model, options, std::move(ranks), run);
}

MethodPlan plan_late_cut_run(const TrainConfig& config, Layer& model, const PlannedRun& run) {
  const LateCutOptions options = late_cut_options(config);
  for (Weight* weight : eligible_weights(model)) weight->set_conv_factors(options.conv_factors);
  const std::vector<Weight*> weights = eligible_weights(model);
  const CutSchedule schedule(options, run.total_steps, run.evaluation_period());
  const std::size_t cuts = schedule.cuts().size();
  const auto planned = [&](const std::vector<std::vector<std::int64_t>>& ranks, bool at_most = false) {
    LateCutPlanners planners;
    planners.full_rank = [&](Layer& part_model, const PlannedRun& part) {
      return full_rank_method(config).plan(config, part_model, part);
    };
    planners.low_rank = [&](Layer& part_model, const PlannedRun& part) {
      MethodPlan plan = low_rank_method(config).plan(config, part_model, part);
      if (!at_most || low_rank_method(config).drifts) return plan;
      // A method may send larger factors with fewer bytes than smaller ones, but not with more than whole gradients.
      const MethodPlan whole = find_method(kBaseline).plan(config, part_model, part);
      if (sent_bytes(whole) > sent_bytes(plan)) plan.traffic = whole.traffic;
      return plan;
    };
    return plan_late_cut(model, schedule, ranks, at_most, planners, run);
  };
  if (!run.assumed.run.empty()) return planned(ranks_of_cuts(run.assumed, weights, cuts));
  std::vector<std::vector<std::int64_t>> most(cuts), least(cuts);
  bool known = true;
  for (std::size_t k = 0; k < cuts; ++k) {
    const double ratio = run.assumed.ratio > 0                   ? run.assumed.ratio
                         : options.rank_policy == RanksBy::ratio ? options.kept(k)
                                                                 : 0;
    known &= ratio > 0;
    if (known) most[k] = ranks_by_ratio(weights, ratio, options.rank_multiple);
    for (const Weight* weight : weights) {
      if (!known) most[k].push_back(weight->n());
      least[k].push_back(1);
    }
  }
  MethodPlan plan = planned(most, !known);
  if (!known) plan.least = planned(least).traffic;
  return plan;
}

}  // namespace ab
