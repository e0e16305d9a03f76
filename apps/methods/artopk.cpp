// SPDX-License-Identifier: MIT
//
// AR-Topk (arXiv 2312.02493; engine/sync/artopk.h).
#include "engine/sync/artopk.h"

#include <algorithm>
#include <numeric>

#include "apps/methods/compressed.h"
#include "layers/model_sizes.h"

namespace ab {
namespace {

using Mode = ArtopkOptions::Mode;

void declare(std::vector<Setting>& settings) {
  auto s = method_section<ArtopkOptions>(settings, ArtopkStrategy::kName, "AR-Topk (method artopk)");
  s.number("ratio", &ArtopkOptions::ratio, 0, 1, "c: share of all gradient elements that a step sends").above_low =
      true;
  s.choice("mode", &ArtopkOptions::mode,
           {{"star", Mode::star},
            {"var", Mode::var},
            {"gather", Mode::gather},
            {"layerwise", Mode::layerwise},
            {"auto", Mode::automatic}},
           "who selects: one rank in turn for all, the rank with the largest selection for all, every rank for itself, "
           "or that parameter by parameter; auto: star over a ring or a tree or gather, whichever a cost model of the "
           "network finds fastest");
  s.number("probe_every", &ArtopkOptions::probe_every, 1, kMostSteps,
           "auto: after so many steps it decides anew, by --network's figures or, without them, by measured ones");
  s.value(
      "adapt", &ArtopkOptions::adapt,
      "auto: the ratio adapts too, from least_ratio to ratio: every period begins with the one that weighs the time of "
      "a step against the share of the gradient's energy that is sent");
  s.number("least_ratio", &ArtopkOptions::least_ratio, 0, 1, "the smallest ratio that adapt may choose").above_low =
      true;
  declare_dense_steps(s);
}

void check(const TrainConfig& config, Layer&, int) {
  const auto& options = config.method_options.of<ArtopkOptions>();
  if (!options.adapt) return;
  AB_CHECK(options.mode == Mode::automatic, "--artopk.adapt needs --artopk.mode auto, which models the time of a step");
  AB_CHECK(options.least_ratio <= options.ratio, "--artopk.least-ratio {} is above --artopk.ratio {}",
           options.least_ratio, options.ratio);
}

std::unique_ptr<SyncStrategy> make(const TrainConfig& config, Layer& model, Comm& world, const LrSchedule& schedule) {
  const auto& options = config.method_options.of<ArtopkOptions>();
  return std::make_unique<ArtopkStrategy>(replica_of(model, config.sync_bn != SyncBn::off), world, options,
                                          compression_start(config, options.dense_steps, schedule),
                                          !config.network.empty());
}

/// Compressed steps by the way that their elements take, all of k elements.
struct Ways {
  std::int64_t k = 0;
  std::int64_t star = 0, ring = 0, tree = 0, gather = 0;  ///< star: by the all-reduce of the run
};

Ways ways_by(ArtopkWay way, std::int64_t k, std::int64_t steps) {
  switch (way) {
    case ArtopkWay::ring: return {.k = k, .ring = steps};
    case ArtopkWay::tree: return {.k = k, .tree = steps};
    case ArtopkWay::gather: break;
  }
  return {.k = k, .gather = steps};
}

/// What deciding costs.
struct Deciding {
  std::int64_t probes = 0, choices = 0;  ///< measurements of the network; choices of a ratio, and among how many
  std::size_t ratios = 1;
  std::int64_t epochs = 0;  ///< ends of epochs that ask for the loss
};

MethodPlan plan_ways(const TrainConfig& config, const ModelSizes& sizes, const PlannedRun& run, std::int64_t most,
                     const std::vector<Ways>& all_ways, const Deciding& deciding) {
  const auto& options = config.method_options.of<ArtopkOptions>();
  const std::vector<std::int64_t> gradients = sizes.gradients();
  const std::int64_t all = 4 * std::accumulate(gradients.begin(), gradients.end(), std::int64_t{0});
  CompressedSteps compressed{.buckets = {{}}};
  compressed.count = [&](TrafficCounter& counter, std::int64_t) {
    for (const Ways& ways : all_ways) {
      const std::int64_t summing = ways.star + ways.ring + ways.tree, summed_bytes = run.wire_bytes(ways.k);
      const std::int64_t vote_bytes = options.mode == Mode::var ? 4 * run.world_size : 0;
      counter.over_world(Collective::all_gather, vote_bytes, summing);
      counter.over_world(Collective::broadcast, 4 * ways.k, summing);
      counter.over_world(Collective::all_reduce, summed_bytes, ways.star);
      counter.all_reduce_by(AllReduce::ring, summed_bytes, ways.ring);
      counter.all_reduce_by(AllReduce::tree, summed_bytes, ways.tree);
      counter.over_world(Collective::all_gather, run.world_size * kSparseEntryBytes * ways.k, ways.gather);
    }
    counter.over_world(Collective::all_reduce, SyncStrategy::kEpochLossBytes, deciding.epochs);
    counter.set_phase(ArtopkSwitch::kProbe);
    counter.all_reduce_by(AllReduce::ring, ArtopkSwitch::kSmallBytes, deciding.probes * ArtopkSwitch::kSmallCalls);
    counter.all_reduce_by(AllReduce::ring, ArtopkSwitch::kLargeBytes, deciding.probes * ArtopkSwitch::kLargeCalls);
    counter.all_reduce_by(AllReduce::ring, ArtopkSwitch::kAgreedBytes, deciding.probes);
    counter.all_reduce_by(AllReduce::ring, ArtopkSwitch::gain_bytes(deciding.ratios), deciding.choices);
  };
  const bool sums = options.mode != Mode::gather && options.mode != Mode::layerwise;
  const bool gathers = options.mode != Mode::star && options.mode != Mode::var;
  const std::int64_t entries = kSparseEntryBytes * most;
  // Gains are taken of two selections at a time, each with its indices.
  compressed.work_bytes =
      all + (sums ? entries : 0) + (gathers ? (1 + run.world_size) * entries : 0) + (options.adapt ? 2 * entries : 0);
  compressed.kept_bytes = all;
  MethodPlan plan = plan_compressed(sizes, run, options.dense_steps, compressed);
  if (const std::int64_t times = std::max(deciding.probes, deciding.choices); times > 0) {
    plan.phases.push_back(ArtopkSwitch::kProbe);
    plan.times[ArtopkSwitch::kProbe] = times;
  }
  return plan;
}

/// The ways of a run that has been trained.
std::vector<Ways> ways_of_run(const std::vector<DecisionMetrics>& decisions, const ArtopkOptions& options,
                              const std::vector<std::int64_t>& choices, std::int64_t steps) {
  std::vector<Ways> all;
  std::int64_t known = 0;
  for (const std::int64_t k : choices)
    for (const ArtopkWay way : kArtopkWays) {
      const auto& values = decisions.back().values;
      const auto at = values.find(options.adapt ? ArtopkSwitch::steps_name(way, k) : ArtopkSwitch::steps_name(way));
      if (at == values.end() || at->second < 0) continue;
      all.push_back(ways_by(way, k, at->second));
      known += at->second;
    }
  AB_CHECK(known == steps,
           "--decisions-from names a run that has not decided about {} compressed steps, as this one does", steps);
  return all;
}

MethodPlan plan(const TrainConfig& config, Layer& model, const PlannedRun& run) {
  run.check();
  check(config, model, run.world_size);
  const auto& options = config.method_options.of<ArtopkOptions>();
  const ModelSizes sizes = sizes_of(model);
  const std::vector<std::int64_t> choices = artopk_choices(options, sizes.gradients());
  const std::int64_t most = choices.front(), least = choices.back();
  const std::int64_t dense = std::min(run.total_steps, dense_steps(options.dense_steps, run.whole_steps()));
  const std::int64_t steps = run.total_steps - dense;
  const auto planned = [&](const std::vector<Ways>& ways, const Deciding& deciding = {}) {
    return plan_ways(config, sizes, run, most, ways, deciding);
  };
  if (options.mode == Mode::star || options.mode == Mode::var) return planned({{.k = most, .star = steps}});
  if (options.mode != Mode::automatic) return planned({{.k = most, .gather = steps}});

  Deciding deciding{.ratios = choices.size()};
  if (steps > 0) deciding.epochs = run.epochs() - dense / run.steps_per_epoch;
  if (run.world_size > 1) {
    const std::int64_t periods = (steps + options.probe_every - 1) / options.probe_every;
    if (config.network.empty()) deciding.probes = periods;
    if (choices.size() > 1) deciding.choices = periods;
  }
  if (run.world_size == 1) return planned({ways_by(ArtopkWay::ring, most, steps)}, deciding);
  if (!run.decisions.empty()) return planned(ways_of_run(run.decisions, options, choices, steps), deciding);
  if (!config.network.empty() && choices.size() == 1) {
    // With the figures that training takes: what the words leave out is without limits there.
    const LinkModel links = parse_network(config.network).at(0);
    const Link& link = link_of_group(Layout(consecutive_nodes(run.world_size, run.ranks_per_node)), links);
    const auto wire_bytes = static_cast<std::int64_t>(size_of(run.gradients.dtype));
    const ArtopkWay way = fastest_way(run.world_size, artopk_payload(most, wire_bytes), link);
    return planned({ways_by(way, most, steps)}, deciding);
  }
  // Every rank's own indices are never less than one rank's, and values are summed once; gains are known in training only.
  MethodPlan plan = planned({ways_by(ArtopkWay::gather, most, steps)}, deciding);
  if (steps > 0) plan.least = planned({ways_by(ArtopkWay::ring, least, steps)}, deciding).traffic;
  return plan;
}

/// A run with that many compressed steps of each way.
Told told_ways(std::map<std::string, std::int64_t> steps) {
  Told told;
  told.unknowns.decision = [steps = std::move(steps)](std::int64_t) { return steps; };
  return told;
}

MayBecome told(const TrainConfig& config, Layer& model, const RunFacts& facts) {
  const auto& options = config.method_options.of<ArtopkOptions>();
  const std::vector<std::int64_t> choices = artopk_choices(options, sizes_of(model).gradients());
  const std::int64_t total = facts.schedule.total_steps;
  const std::int64_t steps = total - std::min(total, dense_steps(options.warmup_steps, total));
  if (options.mode != Mode::automatic || facts.world_size == 1 || steps == 0) return {{}};
  const auto name = [&](ArtopkWay way, std::int64_t k) {
    return options.adapt ? ArtopkSwitch::steps_name(way, k) : ArtopkSwitch::steps_name(way);
  };
  if (!facts.decisions.empty()) {
    std::map<std::string, std::int64_t> of_run;
    std::int64_t known = 0;
    for (const std::int64_t k : choices)
      for (const ArtopkWay way : kArtopkWays)
        if (const auto at = facts.decisions.back().values.find(name(way, k));
            at != facts.decisions.back().values.end() && at->second > 0)
          known += of_run[at->first] = at->second;
    AB_CHECK(known == steps,
             "--decisions-from names a run that has not decided about {} compressed steps, as this one does", steps);
    return {told_ways(of_run)};
  }
  if (!config.network.empty() && choices.size() == 1) return {{}};
  // Every rank's own indices are never less than one rank's, and values are summed once; gains are known in training only.
  return {told_ways({{name(ArtopkWay::gather, choices.front()), steps}}),
          told_ways({{name(ArtopkWay::ring, choices.back()), steps}})};
}

}  // namespace

Method artopk_method() {
  return {.name = ArtopkStrategy::kName,
          .declare = declare,
          .check = check,
          .make = make,
          .plan = plan,
          .told = told,
          .decides = true,
          .laws = {{.small = "ratio = 0.1\ndense_steps = 3",
                    .phases = {CompressedGradients::kWarmup, CompressedGradients::kCompressed},
                    .lossless = "ratio = 1\ndense_steps = 0"}}};
}

}  // namespace ab
