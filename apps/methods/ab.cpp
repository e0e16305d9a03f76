// SPDX-License-Identifier: MIT
//
// AB-training (arXiv 2405.01067; ablowrank/ab_strategy.h, ablowrank/both_strategy.h).
#include "apps/methods/ab.h"

#include <algorithm>

#include "ablowrank/ab_strategy.h"
#include "ablowrank/both_strategy.h"
#include "ablowrank/split.h"
#include "apps/methods/method.h"
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

const char* full_rank_method_name(const TrainConfig& config) {
  const AbSettings& ab = ab_settings(config);
  return ab.train == TrainedFactors::both ? ab.full_rank_method.c_str() : nullptr;
}

void check(const TrainConfig& config, Layer& model, int world_size) {
  const AbOptions options = ab_options(config);
  if (options.train == TrainedFactors::both) {
    const Method& full_rank = full_rank_method(config);
    if (full_rank.check) full_rank.check(config, model, world_size);
    options.validate();
    return check_names(options.always_sync, model);
  }
  AB_CHECK(ab_settings(config).full_rank_method == kBaseline,
           "--ab.full-rank-method is for --ab.train both; groups train at full rank themselves");
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

std::unique_ptr<SyncStrategy> make(const TrainConfig& config, Layer& model, Comm& world, const LrSchedule& schedule) {
  const AbOptions options = ab_options(config);
  if (options.train == TrainedFactors::groups) return std::make_unique<AbStrategy>(model, world, options, schedule);
  keep_at_full_rank(options.always_sync, model);
  const PlannedRun length{.total_steps = schedule.total_steps,
                          .steps_per_epoch = schedule.steps_per_epoch,
                          .eval_every = config.eval_every};
  CutSchedule cuts(options.cut, observes(options), length.total_steps, length.evaluation_period());
  return std::make_unique<BothStrategy>(model, world, options, std::move(cuts),
                                        full_rank_method(config).make(config, model, world, schedule));
}

MethodPlan plan(const TrainConfig& config, Layer& model, const PlannedRun& run) {
  check(config, model, run.world_size);
  return plan_ab_run(config, model, run);
}

}  // namespace

const Method& full_rank_method(const TrainConfig& config) {
  const Method& method = find_method(ab_settings(config).full_rank_method);
  std::vector<const char*> allowed;
  for (const Method& other : methods())
    if (other.averages_gradients) allowed.push_back(other.name);
  AB_CHECK(method.averages_gradients, "--ab.full-rank-method {}: AB-training can begin with {}", method.name,
           fmt::join(allowed, ", "));
  return method;
}

Method ab_method() {
  return {
      .name = kAbName,
      .declare = declare_ab,
      .bring_defaults = [](TrainConfig& config) { start_ab_from("default", config); },
      .uses = full_rank_method_name,
      .settle = settle,
      .check = check,
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
           .small = "cut_at = [0.4, 0.7]\ncut_keep = [0.75, 0.5]\nrank_policy = \"ratio\"\n"
                    "gather_steps = 2\nfull_rank_method = \"acpsgd\"",
           .phases = {"warmup", "compressed", "split", "low-rank-1", "low-rank-2"},
           .lossless = "cut_at = []\nfull_rank_method = \"dense\""},
          {.variant = "both_by_weight",
           .small = "cut_at = [0.4]\nrank_policy = \"fixed\"\nfixed_rank = 4\n"
                    "directions = \"weight\"\nfinal_model = \"dense\"\nfull_rank_method = \"powersgd\"",
           .phases = {"warmup", "compressed", "split", "low-rank"}}}};
}

}  // namespace ab
