// SPDX-License-Identifier: MIT
//
// AB-training (arXiv 2405.01067; ablowrank/groups/ab_strategy.h).
#include "apps/methods/ab.h"

#include <algorithm>

#include "ablowrank/groups/ab_strategy.h"
#include "apps/methods/method.h"

namespace ab {
namespace {

constexpr const char* kName = "ab";

/// VGG16 on CIFAR-10 as the authors of arXiv 2405.01067 released it with their code (github.com/Helmholtz-AI-Energy/AB-Training,
/// April 2024). W, S, D and R are step for step those of the release; a run still synchronises before it validates and when it
/// ends, which the release does not. Their experiments on ImageNet are in apps/configs/paper.
void paper(TrainConfig& config) {
  AbOptions& ab = config.of<AbOptions>() = {};
  ab.schedule = {4330, 759, 60, 267, /*cut_at_warmup=*/false, /*release_order=*/true};
  ab.sync = SyncMode::only_b;
  ab.group_size = 4;  // the GPUs of a node
  ab.gauge = Gauge::split_sigma;
  ab.rank_policy.ratio = 0;
  ab.moments = MomentCarry::truncate;
  config.rank_multiple = 1;
  config.execution = Execution::form_w;
}

void declare(std::vector<Setting>& settings) {
  constexpr const char* title = "AB-training (method ab)";
  const auto s = method_section<AbOptions>(settings, kName, title);
  const Section<PhaseSchedule> schedule(
      settings, title, "ab.", [](auto& c) -> auto& { return c.template of<AbOptions>().schedule; });
  const Section<RankPolicy> policy(
      settings, title, "ab.", [](auto& c) -> auto& { return c.template of<AbOptions>().rank_policy; });

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
  s.choice("sync", &AbOptions::sync,
           {{"full", SyncMode::full},
            {"with-stale", SyncMode::with_stale},
            {"only-learned", SyncMode::only_learned},
            {"only-b", SyncMode::only_b},
            {"tangent", SyncMode::tangent}},
           "rejoining of groups: average A*B, all copies of A and B, only trained copies, or "
           "only B; or "
           "add both updates in full and count what they share once");
  s.number("group_size", &AbOptions::group_size, -1, 65536, "ranks per group; -1: two halves of the world");
  s.choice("gauge", &AbOptions::gauge, {{"split-sigma", Gauge::split_sigma}, {"orthonormal", Gauge::orthonormal}},
           "singular values go half to each factor, or all to the trained one");
  schedule.value("cut_at_warmup", &PhaseSchedule::cut_at_warmup,
                 "cut the rank at the first split as well, not only at later ones");
  policy.number("ratio", &RankPolicy::ratio, 0, 1,
                "r as a share of all singular values; 0: --ab.sigma-cutoff chooses r");
  policy.number("sigma_cutoff", &RankPolicy::cutoff, 0, 1, "keep singular values above this share of the largest");
  s.choice("rest", &AbOptions::rest, {{"drop", Rest::drop}, {"keep", Rest::keep}},
           "remainder of a cut: dropped (the paper), or kept in the model as a frozen dense tensor");
  s.choice("moments", &AbOptions::moments, {{"project", MomentCarry::project}, {"truncate", MomentCarry::truncate}},
           "optimizer state at a split: project onto the new factors, or cut and pad");
  s.choice("final_model", &AbOptions::final_model, {{"factors", FinalModel::factors}, {"dense", FinalModel::dense}},
           "model that a run saves when it ends in a low-rank phase");
  s.value("always_sync", &AbOptions::always_sync,
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
  AB_CHECK(options.rank_policy.ratio == 0 || options.rank_policy.cutoff == RankPolicy{}.cutoff,
           "--ab.sigma-cutoff {} has no effect beside --ab.ratio {}; give --ab.ratio 0", options.rank_policy.cutoff,
           options.rank_policy.ratio);
  AB_CHECK(options.group_size != 0, "--ab.group-size cannot be 0; give the ranks per group, or -1 for two halves");
  options.validate();
  make_groups(world_size, options.group_size, options.sync == SyncMode::only_b);
  check_names(options.always_sync, model);
}

std::unique_ptr<SyncStrategy> make(const TrainConfig& config, Layer& model, Comm& world, const LrSchedule& schedule) {
  return std::make_unique<AbStrategy>(model, world, ab_options(config), schedule);
}

}  // namespace

AbOptions ab_options(const TrainConfig& config) {
  AbOptions options = ab_settings(config);
  options.rank_policy.multiple = rank_multiple(config);
  options.execution = config.execution;
  options.sync_bn = config.sync_bn;
  options.gradients = gradient_wire(config);
  return options;
}

Method ab_method() {
  return {.name = kName,
          .declare = declare,
          .presets = {{"paper", "as released for VGG16 on CIFAR-10", paper}},
          .check = check,
          .make = make,
          .told = told_ab,
          .has_factors = true,
          .has_ranks = true};
}

}  // namespace ab
