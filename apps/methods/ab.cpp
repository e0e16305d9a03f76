// SPDX-License-Identifier: MIT
//
// AB-training (arXiv 2405.01067; ablowrank/ab_strategy.h, ablowrank/both_strategy.h).
#include "apps/methods/ab.h"

#include <algorithm>

#include "ablowrank/ab_strategy.h"
#include "ablowrank/both_strategy.h"
#include "ablowrank/split.h"
#include "apps/methods/local.h"
#include "apps/methods/method.h"
#include "apps/methods/nodes.h"
#include "apps/settings/nearest_name.h"

namespace ab {
namespace {

void check_names(const std::vector<std::string>& names, Layer& model) {
  std::vector<std::string> known;
  for (const Param* p : inventory_of(model).params) known.push_back(p->name);
  for (const std::string& name : names) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    const std::string nearest = nearest_name(name, known);
    throw Error(ErrorKind::config, fmt::format("--ab.always-sync: the model has no parameter '{}'; {}", name,
                                               nearest.empty() ? fmt::format("its first is '{}'", known[0])
                                                               : fmt::format("did you mean '{}'?", nearest)));
  }
}

std::vector<std::string> methods_used(const TrainConfig& config) {
  const AbSettings& ab = ab_settings(config);
  if (ab.train != TrainedFactors::both) return {};
  return {ab.full_rank_method, ab.low_rank_method};
}

void check(const TrainConfig& config, Layer& model, int world_size) {
  const AbOptions options = ab_options(config);
  if (options.train == TrainedFactors::both) {
    for (const Method* method : {&full_rank_method(config), &low_rank_method(config)})
      if (method->check) method->check(config, model, world_size);
    const bool wants_nodes = ab_settings(config).preset == "nodes" && world_size > 1;
    AB_CHECK(!wants_nodes || node_layout(config, local_settings(config).node_size, world_size).node_size > 1,
             "--ab.preset nodes finds one rank on each node; say how many there are with --ranks-per-node or "
             "--local.node-size");
    AB_CHECK(
        !full_rank_method(config).drifts || low_rank_method(config).drifts,
        "--ab.full-rank-method {} leaves every rank with optimizer state of its own, with which {} cannot go on; give "
        "--ab.low-rank-method {} too",
        full_rank_method(config).name, low_rank_method(config).name, full_rank_method(config).name);
    options.validate();
    return check_names(options.always_sync, model);
  }
  AB_CHECK(
      ab_settings(config).full_rank_method == kBaseline && ab_settings(config).low_rank_method == kBaseline,
      "--ab.full-rank-method and --ab.low-rank-method are for --ab.train both; groups average gradients themselves");
  AB_CHECK(options.schedule.full_rank_steps < options.schedule.cycle_steps,
           "--ab.full-rank-steps {} leaves no step for the factors in a cycle of --ab.cycle-steps {}",
           options.schedule.full_rank_steps, options.schedule.cycle_steps);
  AB_CHECK(options.group_size != 0, "--ab.group-size cannot be 0; give the ranks per group, or -1 for two halves");
  options.validate();
  make_groups(world_size, options.group_size, options.sync == SyncMode::only_b);
  check_names(options.always_sync, model);
}

void settle(TrainConfig& config, const TrainConfig& began) {
  std::int64_t& multiple = ab_settings(config).rank_policy.multiple;
  if (multiple == 0) multiple = rank_multiple(began);
}

CutSchedule cut_schedule(const TrainConfig& config, const LrSchedule& schedule) {
  const AbOptions options = ab_options(config);
  const PlannedRun length{.total_steps = schedule.total_steps,
                          .steps_per_epoch = schedule.steps_per_epoch,
                          .eval_every = config.eval_every};
  return CutSchedule(options.cut, observes(options), length.total_steps, length.evaluation_period());
}

void check_length(const TrainConfig& config, const LrSchedule& schedule) {
  if (ab_settings(config).train == TrainedFactors::both) cut_schedule(config, schedule);
}

std::unique_ptr<SyncStrategy> make(const TrainConfig& config, Layer& model, Comm& world, const LrSchedule& schedule) {
  const AbOptions options = ab_options(config);
  if (options.train == TrainedFactors::groups) return std::make_unique<AbStrategy>(model, world, options, schedule);
  prepare_weights(options, model);
  return std::make_unique<BothStrategy>(model, world, options, cut_schedule(config, schedule),
                                        make_strategy(full_rank_method(config), config, model, world, schedule),
                                        [&config, &world, schedule](Replica factors) {
                                          return low_rank_method(config).average(config, std::move(factors), world,
                                                                                 schedule);
                                        });
}

MethodPlan plan(const TrainConfig& config, Layer& model, const PlannedRun& run) {
  check(config, model, run.world_size);
  return plan_ab_run(config, model, run);
}

const Method& averaging_method(const char* flag, const std::string& name) {
  const Method& method = find_method(name);
  std::vector<const char*> allowed;
  for (const Method& other : methods())
    if (other.average) allowed.push_back(other.name);
  AB_CHECK(method.average, "--ab.{} {}: AB-training can keep ranks together by {}", flag, method.name,
           fmt::join(allowed, ", "));
  return method;
}

}  // namespace

const Method& full_rank_method(const TrainConfig& config) {
  return averaging_method("full-rank-method", ab_settings(config).full_rank_method);
}

const Method& low_rank_method(const TrainConfig& config) {
  return averaging_method("low-rank-method", ab_settings(config).low_rank_method);
}

Method ab_method() {
  return {
      .name = kAbName,
      .declare = declare_ab,
      .bring_defaults = [](TrainConfig& config) { start_ab_from("default", config); },
      .uses = methods_used,
      .settle = settle,
      .check = check,
      .check_length = check_length,
      .make = make,
      .plan = plan,
      .has_ranks = true,
      .laws = {
          {.variant = "groups",
           .small = "train = \"groups\"\nwarmup_steps = 2\ncycle_steps = 5\nfull_rank_steps = 2\nlr_rebound_steps = 1",
           .phases = {"warmup", "split", "low-rank", "sync", "rebound"},
           .lossless = "train = \"groups\"\nwarmup_steps = 1000000",
           .unusable_by_three = "train = \"groups\"\ngroup_size = 4"},
          {.variant = "both",
           .small = "cut_at = [0.4, 0.7]\ncut_keep = [0.4, 0.2]\nrank_policy = \"ratio\"\n"
                    "gather_steps = 2\nfull_rank_method = \"acpsgd\"\nlow_rank_method = \"acpsgd\"",
           .phases = {"warmup", "compressed", "split", "low-rank-1", "low-rank-2"},
           .lossless = "cut_at = []\nfull_rank_method = \"dense\""},
          {.variant = "both_sparse",
           .small =
               "cut_at = [0.4]\nrank_policy = \"ratio\"\nratio = 0.3\ngather_steps = 3\nfull_rank_method = \"dense\"\n"
               "low_rank_method = \"scalecom\"",
           .phases = {"full", "split", "low-rank"}},
          {.variant = "both_local",
           .small = "cut_at = [0.4, 0.7]\ncut_keep = [0.75, 0.5]\nrank_policy = \"ratio\"\ngather_steps = 3\n"
                    "conv_factors = \"channel\"\nfull_rank_method = \"local\"\nlow_rank_method = \"local\"",
           .phases = {"local", "average", "split", "low-rank-1", "low-rank-2"}},
          {.variant = "both_by_weight",
           .small = "cut_at = [0.4]\nrank_policy = \"fixed\"\nfixed_rank = 4\n"
                    "directions = \"weight\"\nfinal_model = \"dense\"\nlow_rank_method = \"dense\"",
           .phases = {"warmup", "compressed", "split", "low-rank"}}}};
}

}  // namespace ab
