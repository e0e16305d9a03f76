// SPDX-License-Identifier: MIT
//
// AB-training (arXiv 2405.01067; ablowrank/groups/ab_strategy.h).
#include "apps/methods/ab.h"

#include <algorithm>

#include "ablowrank/groups/ab_strategy.h"
#include "apps/methods/factors.h"
#include "apps/methods/method.h"
#include "apps/methods/preset.h"
#include "apps/settings/nearest_name.h"

namespace ab {
namespace {

constexpr const char* kName = "ab";
constexpr double kMany = 1e15;  // "for ever" for a number of steps, and exact in a double

struct ReleasedExperiment {
  const char* name;
  std::int64_t warmup, cycle, full_rank, rebound;  // W, S, D, R
  SyncMode sync;
  int group_size;
};

// What the authors of arXiv 2405.01067 released with their code (github.com/Helmholtz-AI-Energy/AB-Training, April 2024). W, S,
// D and R are step for step those of the release; a run still synchronises before it validates and when it ends, which the
// release does not.
// "2k" to "64k" are global batches; groups of 4 are the GPUs of a node.
constexpr ReleasedExperiment kReleased[] = {
    {"paper-resnet50-2k", 24000, 6000, 300, 600, SyncMode::with_stale, 4},
    {"paper-resnet50-4k", 9300, 3000, 300, 750, SyncMode::with_stale, 4},
    {"paper-resnet50-8k", 6150, 1500, 150, 325, SyncMode::with_stale, 4},
    {"paper-resnet50-16k", 3750, 600, 75, 188, SyncMode::with_stale, 4},
    {"paper-resnet50-32k", 1900, 400, 38, 94, SyncMode::with_stale, 4},
    {"paper-resnet50-64k", 581, 94, 19, 47, SyncMode::with_stale, 4},
    {"paper-resnet50-nogroups-2k", 24000, 6000, 300, 600, SyncMode::only_b, -1},
    {"paper-resnet50-nogroups", 9300, 3000, 300, 750, SyncMode::only_b, -1},
    {"paper-vit-2k", 24600, 4360, 600, 1500, SyncMode::only_b, -1},
    {"paper-vit-4096", 12300, 2180, 300, 750, SyncMode::only_b, -1},
    {"paper", 4330, 759, 60, 267, SyncMode::only_b, 4},
};

AbSettings released(const ReleasedExperiment& experiment) {
  AbSettings ab;
  ab.schedule = {experiment.warmup,       experiment.cycle,      experiment.full_rank, experiment.rebound,
                 /*cut_at_warmup=*/false, /*release_order=*/true};
  ab.sync = experiment.sync;
  ab.group_size = experiment.group_size;
  ab.gauge = Gauge::split_sigma;
  ab.rank_policy.kind = RankPolicy::Kind::sigma_cutoff;
  ab.rank_policy.cutoff = 0.15;
  ab.rank_policy.multiple = 1;
  ab.moments = MomentCarry::truncate;
  ab.execution = Execution::form_w;
  ab.svd = SvdMethod::direct;
  return ab;
}

void declare(std::vector<Setting>& settings) {
  auto s = method_section<AbSettings>(settings, kName, "AB-training (method ab)");
  std::vector<std::pair<const char*, AbSettings>> presets{{"default", {}}};
  for (const ReleasedExperiment& experiment : kReleased) presets.emplace_back(experiment.name, released(experiment));
  declare_preset(
      s, std::move(presets),
      "where the other ab settings start from: ours, or those of an experiment that the authors released; 'paper' "
      "is VGG16 on CIFAR-10, and this list tells where it differs from the default");
  auto schedule = s.part(&AbSettings::schedule);
  auto policy = s.part(&AbSettings::rank_policy);

  schedule.number("warmup_steps", &PhaseSchedule::warmup_steps, 0, kMany, "W: full-rank steps before the first split");
  schedule.number("cycle_steps", &PhaseSchedule::cycle_steps, 2, kMany,
                  "S: steps from one synchronisation to the next");
  schedule.number("full_rank_steps", &PhaseSchedule::full_rank_steps, 1, kMany,
                  "D: of those, full-rank steps after the synchronisation");
  schedule.number("lr_rebound_steps", &PhaseSchedule::rebound_steps, 0, kMany,
                  "R: ramp of the learning rate after every transition");
  schedule.value("paper_schedule", &PhaseSchedule::release_order,
                 "take transitions in the order of the authors' release, which counts cycles from step 0 and may "
                 "split twice");
  s.choice("sync", &AbSettings::sync,
           {{"full", SyncMode::full},
            {"with-stale", SyncMode::with_stale},
            {"only-learned", SyncMode::only_learned},
            {"only-b", SyncMode::only_b},
            {"tangent", SyncMode::tangent}},
           "what happens when groups rejoin: average A*B, all copies of A and B, only trained copies, or "
           "only B; or "
           "add both updates in full and count what they share once");
  s.choice("setup", &AbSettings::gradient_scope,
           {{"groups", GradientScope::group}, {"individual", GradientScope::individual}},
           "average factor gradients inside the group, or leave every rank to itself");
  s.number("group_size", &AbSettings::group_size, -1, 65536, "ranks per group; -1: two halves of the world");
  s.choice("gauge", &AbSettings::gauge, {{"split-sigma", Gauge::split_sigma}, {"orthonormal", Gauge::orthonormal}},
           "singular values go half to each factor, or all to the trained one");
  schedule.value("cut_at_warmup", &PhaseSchedule::cut_at_warmup,
                 "cut the rank at the first split as well, not only at later ones");
  policy.choice("rank_policy", &RankPolicy::kind,
                {{"sigma-cutoff", RankPolicy::Kind::sigma_cutoff},
                 {"ratio", RankPolicy::Kind::ratio},
                 {"energy", RankPolicy::Kind::energy},
                 {"fixed", RankPolicy::Kind::fixed}},
                "how r is chosen, by the singular values of each weight");
  policy.number("sigma_cutoff", &RankPolicy::cutoff, 0, 1, "keep singular values above this share of the largest");
  policy.number("ratio", &RankPolicy::ratio, 0, 1, "keep this share of all singular values").above_low = true;
  policy.number("energy", &RankPolicy::energy, 0, 1, "keep this share of the sum of squared singular values")
      .above_low = true;
  policy.number("fixed_rank", &RankPolicy::fixed, 1, 65536, "keep so many singular values");
  declare_rank_multiple(policy, &RankPolicy::multiple);
  s.choice("rest", &AbSettings::rest, {{"drop", Rest::drop}, {"keep", Rest::keep}},
           "what a cut leaves over: dropped (the paper), or kept in the model as a frozen dense tensor");
  s.choice("moments", &AbSettings::moments,
           {{"project", MomentCarry::project}, {"reset", MomentCarry::reset}, {"truncate", MomentCarry::truncate}},
           "optimizer state at a split: project onto the new factors, forget, or cut and pad");
  declare_execution(s);
  s.choice("svd", &AbSettings::svd, {{"gram", SvdMethod::gram}, {"direct", SvdMethod::direct}},
           "eigenvectors of the Gram matrix (faster), or LAPACK's SVD");
  s.choice("final_model", &AbSettings::final_model, {{"factors", FinalModel::factors}, {"dense", FinalModel::dense}},
           "what a run that ends in a low-rank phase saves");
  s.value("always_sync", &AbSettings::always_sync,
          "names of parameters that are never split, separated by commas; the model's own list when empty");
}

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

void check(const TrainConfig& config, Layer& model, int world_size) {
  const AbOptions options = ab_options(config);
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
  if (multiple == 0) multiple = rank_multiple(ab_settings(began).rank_policy.multiple, began);
}

std::unique_ptr<SyncStrategy> make(const TrainConfig& config, Layer& model, Comm& world, const LrSchedule& schedule) {
  return std::make_unique<AbStrategy>(model, world, ab_options(config), schedule);
}

MethodPlan plan(const TrainConfig& config, Layer& model, const PlannedRun& run) {
  check(config, model, run.world_size);
  return plan_ab_run(config, model, run);
}

}  // namespace

AbOptions ab_options(const TrainConfig& config) {
  AbOptions options = ab_settings(config);
  options.rank_policy.multiple = rank_multiple(options.rank_policy.multiple, config);
  options.sync_bn = config.sync_bn;
  options.gradients = gradient_wire(config);
  return options;
}

Method ab_method() {
  return {.name = kName,
          .declare = declare,
          .settle = settle,
          .check = check,
          .make = make,
          .plan = plan,
          .has_ranks = true,
          .laws = {{.small = "warmup_steps = 2\ncycle_steps = 5\nfull_rank_steps = 2\nlr_rebound_steps = 1",
                    .phases = {"warmup", "split", "low-rank", "sync", "rebound"},
                    .lossless = "warmup_steps = 1000000",
                    .unusable_by_three = "group_size = 4"}}};
}

}  // namespace ab
