// SPDX-License-Identifier: MIT
//
// AR-Topk (arXiv 2312.02493; engine/sync/artopk.h).
#include "engine/sync/artopk.h"

#include <algorithm>

#include "apps/methods/method.h"

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
           "selecting rank: each in turn for all, the one with the largest selection for all, every rank for itself, "
           "or that parameter by parameter; auto: star over a ring or a tree or gather, whichever a cost model of the "
           "network finds fastest");
  s.number("probe_every", &ArtopkOptions::probe_every, 1, 1e15,
           "auto: after so many steps it decides anew, by --network's figures or, without them, by measured ones")
      .beside = {"artopk.mode", {"auto"}};
  s.number(
      "least_ratio", &ArtopkOptions::least_ratio, 0, 1,
      "auto, above 0: the ratio adapts too, from this one to ratio: every period begins with the one that weighs the "
      "time of a step against the share of the gradient's energy that is sent");
}

void check(const TrainConfig& config, Layer&, int) {
  const auto& options = config.of<ArtopkOptions>();
  if (!options.adapts()) return;
  AB_CHECK(options.mode == Mode::automatic,
           "--artopk.least-ratio needs --artopk.mode auto, which models the time of a step");
  AB_CHECK(options.least_ratio <= options.ratio, "--artopk.least-ratio {} is above --artopk.ratio {}",
           options.least_ratio, options.ratio);
}

std::unique_ptr<SyncStrategy> make(const TrainConfig& config, Layer& model, Comm& world, const LrSchedule& schedule) {
  const auto& options = config.of<ArtopkOptions>();
  return std::make_unique<ArtopkStrategy>(replica_of(model, config.sync_bn != SyncBn::off), world, options,
                                          compression_start(config, schedule), !config.network.empty());
}

/// Elements of the trained parameters, in forward order.
std::vector<std::int64_t> sizes_of_gradients(Layer& model) {
  std::vector<std::int64_t> sizes;
  for (const Param* p : inventory_of(model).params)
    if (p->trainable()) sizes.push_back(p->numel());
  return sizes;
}

/// A run with that many compressed steps of each way.
Told told_ways(std::map<std::string, std::int64_t> steps) {
  Told told;
  told.unknowns.decision = [steps = std::move(steps)](std::int64_t) { return steps; };
  return told;
}

MayBecome told(const TrainConfig& config, Layer& model, const RunFacts& facts) {
  const auto& options = config.of<ArtopkOptions>();
  const std::vector<std::int64_t> choices = artopk_choices(options, sizes_of_gradients(model));
  const std::int64_t total = facts.schedule.total_steps;
  const std::int64_t steps = total - std::min(total, dense_steps(config.dense_steps, total));
  if (options.mode != Mode::automatic || facts.world_size == 1 || steps == 0) return {};
  const auto name = [&](ArtopkWay way, std::int64_t k) {
    return options.adapts() ? ArtopkSwitch::steps_name(way, k) : ArtopkSwitch::steps_name(way);
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
    return {{told_ways(of_run)}};
  }
  if (!config.network.empty() && choices.size() == 1) return {};
  // Every rank's own indices are never less than one rank's, and values are summed once; gains are known in training only.
  return {{told_ways({{name(ArtopkWay::gather, choices.front()), steps}})},
          {told_ways({{name(ArtopkWay::ring, choices.back()), steps}})}};
}

}  // namespace

Method artopk_method() {
  return {.name = ArtopkStrategy::kName,
          .declare = declare,
          .check = check,
          .make = make,
          .told = told,
          .dense_start = true,
          .decides = true};
}

}  // namespace ab
