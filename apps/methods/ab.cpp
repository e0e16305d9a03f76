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

/// VGG16 on CIFAR-10 as the authors of arXiv 2405.01067 released it with their code (github.com/Helmholtz-AI-Energy/AB-Training,
/// April 2024). W, S, D and R are step for step those of the release; a run still synchronises before it validates and when it
/// ends, which the release does not. Their experiments on ImageNet are in apps/configs/paper.
AbSettings paper() {
  AbSettings ab;
  ab.schedule = {4330, 759, 60, 267, /*cut_at_warmup=*/false, /*release_order=*/true};
  ab.sync = SyncMode::only_b;
  ab.group_size = 4;  // the GPUs of a node
  ab.gauge = Gauge::split_sigma;
  ab.rank_policy.kind = RankPolicy::Kind::sigma_cutoff;
  ab.rank_policy.multiple = 1;
  ab.moments = MomentCarry::truncate;
  ab.execution = Execution::form_w;
  ab.svd = SvdMethod::direct;
  return ab;
}

void declare(std::vector<Setting>& settings) {
  auto s = method_section<AbSettings>(settings, kName, "AB-training (method ab)");
  declare_preset(
      s, {{"default", {}}, {"paper", paper()}},
      "where the other ab settings start from: ours, or those that the authors released for VGG16 on CIFAR-10; this "
      "list tells where these differ");
  auto schedule = s.part(&AbSettings::schedule);
  auto policy = s.part(&AbSettings::rank_policy);

  schedule.number("first_split", &PhaseSchedule::first_split, 0, kMany,
                  "W: the first split comes after so many steps at full rank");
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
                {{"sigma-cutoff", RankPolicy::Kind::sigma_cutoff}, {"ratio", RankPolicy::Kind::ratio}},
                "how r is chosen, by the singular values of each weight");
  policy.number("sigma_cutoff", &RankPolicy::cutoff, 0, 1, "keep singular values above this share of the largest");
  policy.number("ratio", &RankPolicy::ratio, 0, 1, "keep this share of all singular values").above_low = true;
  declare_rank_multiple(policy, &RankPolicy::multiple);
  s.choice("rest", &AbSettings::rest, {{"drop", Rest::drop}, {"keep", Rest::keep}},
           "what a cut leaves over: dropped (the paper), or kept in the model as a frozen dense tensor");
  s.choice("moments", &AbSettings::moments, {{"project", MomentCarry::project}, {"truncate", MomentCarry::truncate}},
           "optimizer state at a split: project onto the new factors, or cut and pad");
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
          .told = told_ab,
          .has_ranks = true};
}

}  // namespace ab
