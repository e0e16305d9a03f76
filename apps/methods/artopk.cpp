// SPDX-License-Identifier: MIT
//
// AR-Topk (arXiv 2312.02493; engine/sync/artopk.h).
#include "engine/sync/artopk.h"

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
  declare_warmup(s);
}

std::unique_ptr<SyncStrategy> make(const TrainConfig& config, Layer& model, Comm& world, const LrSchedule& schedule) {
  const auto& options = config.method_options.of<ArtopkOptions>();
  return std::make_unique<ArtopkStrategy>(replica_of(model, config.sync_bn != SyncBn::off), world, options,
                                          compression_start(config, options.warmup_steps, schedule),
                                          !config.network.empty());
}

/// Compressed steps by the way that their elements take.
struct Ways {
  std::int64_t star = 0, ring = 0, tree = 0, gather = 0;  ///< star: by the all-reduce of the run
  std::int64_t probes = 0, epochs = 0;                    ///< measurements, ends of epochs that ask for the loss
};

/// What is sent of the k elements of a step, in bytes.
struct Sent {
  std::int64_t index_bytes, summed_bytes, gathered_bytes, vote_bytes;
};

MethodPlan plan_ways(const TrainConfig& config, const ModelSizes& sizes, const PlannedRun& run, const Sent& sent,
                     const Ways& ways) {
  const auto& options = config.method_options.of<ArtopkOptions>();
  const std::vector<std::int64_t> gradients = sizes.gradients();
  const std::int64_t all = 4 * std::accumulate(gradients.begin(), gradients.end(), std::int64_t{0});
  CompressedSteps compressed{.buckets = {{}}};
  compressed.count = [&](TrafficCounter& counter, std::int64_t) {
    const std::int64_t summing = ways.star + ways.ring + ways.tree;
    counter.over_world(Collective::all_gather, sent.vote_bytes, summing);
    counter.over_world(Collective::broadcast, sent.index_bytes, summing);
    counter.over_world(Collective::all_reduce, sent.summed_bytes, ways.star);
    counter.all_reduce_by(AllReduce::ring, sent.summed_bytes, ways.ring);
    counter.all_reduce_by(AllReduce::tree, sent.summed_bytes, ways.tree);
    counter.over_world(Collective::all_gather, run.world_size * sent.gathered_bytes, ways.gather);
    counter.over_world(Collective::all_reduce, SyncStrategy::kEpochLossBytes, ways.epochs);
    counter.set_phase(ArtopkSwitch::kProbe);
    counter.all_reduce_by(AllReduce::ring, ArtopkSwitch::kSmallBytes, ways.probes * ArtopkSwitch::kSmallCalls);
    counter.all_reduce_by(AllReduce::ring, ArtopkSwitch::kLargeBytes, ways.probes * ArtopkSwitch::kLargeCalls);
    counter.all_reduce_by(AllReduce::ring, ArtopkSwitch::kAgreedBytes, ways.probes);
  };
  const bool sums = options.mode != Mode::gather && options.mode != Mode::layerwise;
  const bool gathers = options.mode != Mode::star && options.mode != Mode::var;
  compressed.work_bytes =
      all + (sums ? 2 * sent.index_bytes : 0) + (gathers ? (1 + run.world_size) * sent.gathered_bytes : 0);
  compressed.kept_bytes = all;
  MethodPlan plan = plan_compressed(sizes, run, options.warmup_steps, compressed);
  if (ways.probes > 0) {
    plan.phases.push_back(ArtopkSwitch::kProbe);
    plan.times[ArtopkSwitch::kProbe] = ways.probes;
  }
  return plan;
}

/// The ways of a run that has been trained.
Ways ways_of_run(const std::vector<DecisionMetrics>& decisions, std::int64_t steps) {
  const auto count = [&](ArtopkWay way) {
    const auto& values = decisions.back().values;
    const auto at = values.find(ArtopkSwitch::steps_name(way));
    return at == values.end() ? -1 : at->second;
  };
  const Ways ways{.ring = count(ArtopkWay::ring), .tree = count(ArtopkWay::tree), .gather = count(ArtopkWay::gather)};
  AB_CHECK(ways.ring >= 0 && ways.tree >= 0 && ways.gather >= 0 && ways.ring + ways.tree + ways.gather == steps,
           "--decisions-from names a run that has not decided about {} compressed steps, as this one does", steps);
  return ways;
}

Ways ways_by(ArtopkWay way, std::int64_t steps) {
  switch (way) {
    case ArtopkWay::ring: return {.ring = steps};
    case ArtopkWay::tree: return {.tree = steps};
    case ArtopkWay::gather: break;
  }
  return {.gather = steps};
}

MethodPlan plan(const TrainConfig& config, Layer& model, const PlannedRun& run) {
  run.check();
  const auto& options = config.method_options.of<ArtopkOptions>();
  const ModelSizes sizes = sizes_of(model);
  const std::int64_t k = artopk_elements(options, sizes.gradients()), world = run.world_size;
  const Sent sent{4 * k, run.wire_bytes(k), kSparseEntryBytes * k, options.mode == Mode::var ? 4 * world : 0};
  const std::int64_t dense = std::min(run.total_steps, dense_steps(options.warmup_steps, run.total_steps));
  const std::int64_t steps = run.total_steps - dense;
  const auto planned = [&](const Ways& ways) { return plan_ways(config, sizes, run, sent, ways); };
  if (options.mode == Mode::star || options.mode == Mode::var) return planned({.star = steps});
  if (options.mode != Mode::automatic) return planned({.gather = steps});

  const auto with_overhead = [&](Ways ways) {
    if (steps > 0) ways.epochs = run.epochs() - dense / run.steps_per_epoch;
    if (world > 1 && config.network.empty()) ways.probes = (steps + options.probe_every - 1) / options.probe_every;
    return planned(ways);
  };
  if (world == 1) return with_overhead(ways_by(ArtopkWay::ring, steps));
  if (!run.decisions.empty()) return with_overhead(ways_of_run(run.decisions, steps));
  if (!config.network.empty()) {
    // With the figures that training takes: what the words leave out is without limits there.
    const LinkModel links = parse_network(config.network).at(0);
    const Link& link = link_of_group(Layout(consecutive_nodes(run.world_size, run.ranks_per_node)), links);
    const auto wire_bytes = static_cast<std::int64_t>(size_of(run.gradients.dtype));
    return with_overhead(ways_by(fastest_way(run.world_size, artopk_payload(k, wire_bytes), link), steps));
  }
  // Every rank's own indices are never less than one rank's, and values are summed once.
  MethodPlan plan = with_overhead(ways_by(ArtopkWay::gather, steps));
  if (steps > 0) plan.least = with_overhead(ways_by(ArtopkWay::ring, steps)).traffic;
  return plan;
}

}  // namespace

Method artopk_method() {
  return {.name = ArtopkStrategy::kName,
          .declare = declare,
          .make = make,
          .plan = plan,
          .decides = true,
          .laws = {{.small = "ratio = 0.1\nwarmup_steps = 3",
                    .phases = {CompressedGradients::kWarmup, CompressedGradients::kCompressed},
                    .lossless = "ratio = 1\nwarmup_steps = 0"}}};
}

}  // namespace ab
