// SPDX-License-Identifier: MIT
//
// The ranks r of a run of AB-training or of a late cut: a share of the user's, or a trained run tells them.
#include <algorithm>

#include "ablowrank/cut.h"
#include "ablowrank/cut_schedule.h"
#include "ablowrank/groups/ab_strategy.h"
#include "ablowrank/split.h"
#include "apps/methods/ab.h"
#include "apps/methods/late_cut.h"
#include "apps/methods/method.h"
#include "apps/methods/told.h"

namespace ab {
namespace {

using Ranks = std::map<std::string, std::int64_t>;  // by the name of a weight

/// Those of a split of the trained run that --factors-from names; a weight that it does not list stayed dense where `partial`.
Ranks ranks_of_run(const AssumedR& assumed, const std::vector<LayerRank>& split, const std::vector<Weight*>& weights,
                   bool partial) {
  Ranks ranks;
  bool any_cut = false;
  for (const Weight* weight : weights) {
    const auto at = std::ranges::find(split, weight->name(), &LayerRank::name);
    if (partial && at == split.end()) {
      ranks[weight->name()] = weight->n();
      continue;
    }
    AB_CHECK(
        at != split.end() && at->m == weight->m() && at->n == weight->n(),
        "--factors-from {} tells no rank of {} ({}×{}): it is the run of another model, or its factors have another form",
        assumed.run, weight->name(), weight->m(), weight->n());
    ranks[weight->name()] = at->r;
    any_cut |= at->r < at->n;
  }
  AB_CHECK(any_cut || !assumed.as_left || weights.empty(),
           "--factors-from {} describes a model that was left at full rank; give its run folder, whose "
           "metrics.jsonl has the "
           "ranks of its splits",
           assumed.run);
  return ranks;
}

/// Those of the cuts, the last of which stands for all that follow; and, where they differ, at the end.
Told known_ranks(std::vector<Ranks> cuts, std::optional<Ranks> at_the_end = {}) {
  Told told;
  told.unknowns.rank = [cuts = std::move(cuts), at_the_end = std::move(at_the_end)](const std::string& weight,
                                                                                    std::int64_t cut) {
    if (cut == Unknowns::kAtTheEnd) return (at_the_end ? *at_the_end : cuts.back()).at(weight);
    return cuts[static_cast<std::size_t>(std::min<std::int64_t>(cut, std::ssize(cuts) - 1))].at(weight);
  };
  return told;
}

/// The largest rank whose factors are smaller than the weight; its own where there is none.
std::int64_t largest_rank(const Weight& weight) {
  const std::int64_t both = weight.rows() + weight.columns(), whole = weight.rows() * weight.columns();
  const std::int64_t largest = std::min(weight.n() - 1, (whole + both - 1) / both - 1);
  return largest < 1 ? weight.n() : largest;
}

}  // namespace

MayBecome told_late_cut(const TrainConfig& config, Layer& model, const RunFacts& facts) {
  const LateCutOptions options = late_cut_options(config);
  for (Weight* weight : eligible_weights(model)) weight->set_conv_factors(options.conv_factors);
  const std::vector<Weight*> weights = eligible_weights(model);
  const CutSchedule schedule = cut_schedule(config, facts.schedule);
  const std::size_t cuts = schedule.cuts().size();
  if (cuts == 0) return {};
  std::vector<Ranks> most;
  if (!facts.assumed.run.empty()) {
    AB_CHECK(facts.assumed.splits.size() == cuts, "--factors-from {}: that run has {} cuts, this one {}",
             facts.assumed.run, facts.assumed.splits.size(), cuts);
    for (const auto& split : facts.assumed.splits) most.push_back(ranks_of_run(facts.assumed, split, weights, true));
    return {{known_ranks(most)}};
  }
  if (facts.assumed.ratio > 0) {
    Ranks& ranks = most.emplace_back();
    const std::vector<std::int64_t> r = ranks_by_ratio(weights, facts.assumed.ratio, options.rank_multiple);
    for (std::size_t i = 0; i < weights.size(); ++i) ranks[weights[i]->name()] = r[i];
    return {{known_ranks(most)}};
  }
  if (options.rank_policy == RanksBy::ratio) return {};
  // A split sends most with the largest factors, and steps after it where none was cut. A method may send larger factors with
  // fewer bytes than smaller ones, but not with more than whole gradients.
  Ranks none, largest, least;
  for (const Weight* weight : weights) {
    none[weight->name()] = weight->n();
    largest[weight->name()] = largest_rank(*weight);
    least[weight->name()] = factors_are_smaller(*weight, 1) ? 1 : weight->n();
  }
  MayBecome runs{{known_ranks({none}), known_ranks({largest})}, {known_ranks({none}), known_ranks({least})}};
  if (const Method& method = low_rank_method(config); !method.drifts && method.name != std::string(kBaseline)) {
    TrainConfig whole = config;
    late_cut_settings(whole).low_rank_method = kBaseline;
    runs.most.push_back({known_ranks({none}).unknowns, whole});
  }
  return runs;
}

MayBecome told_ab(const TrainConfig& config, Layer& model, const RunFacts& facts) {
  const AbOptions options = ab_options(config);
  keep_at_full_rank(options.always_sync, model);
  const std::vector<Weight*> weights = eligible_weights(model);
  if (facts.assumed.run.empty()) {
    RankPolicy policy = options.rank_policy;
    if (facts.assumed.ratio > 0) policy.ratio = facts.assumed.ratio;
    if (policy.ratio == 0) policy.ratio = facts.assumed.unknown_ratio;
    AB_CHECK(policy.ratio > 0,
             "--ab.sigma-cutoff chooses r from the singular values of a trained model; give --ratio, or "
             "--factors-from with a run, to plan with");
    Ranks ranks;
    for (const Weight* weight : weights)
      ranks[weight->name()] = policy.choose(std::vector<double>(static_cast<std::size_t>(weight->n()), 1.0));
    return {{known_ranks({ranks})}};
  }
  std::vector<Ranks> cuts;
  for (const auto& split : facts.assumed.splits) cuts.push_back(ranks_of_run(facts.assumed, split, weights, false));
  const auto is_cut = [](const LayerRank& layer) { return layer.r < layer.n; };
  std::optional<Ranks> at_the_end;
  if (std::ranges::any_of(facts.assumed.final_r, is_cut))  // else that run was left at full rank
    at_the_end = ranks_of_run(facts.assumed, facts.assumed.final_r, weights, false);
  return {{known_ranks(std::move(cuts), std::move(at_the_end))}};
}

}  // namespace ab
