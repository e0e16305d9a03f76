// SPDX-License-Identifier: MIT
//
// AB-training (arXiv 2405.01067; ablowrank/ab_strategy.h).
#include "apps/methods/ab.h"

#include <algorithm>

#include "ablowrank/ab_plan.h"
#include "ablowrank/ab_strategy.h"
#include "ablowrank/split.h"
#include "apps/methods/method.h"
#include "apps/settings/nearest_name.h"

namespace ab {
namespace {

constexpr const char* kName = "ab";
constexpr double kMany = 1e15;  // "for ever" for a number of steps, and exact in a double

void declare(std::vector<Setting>& settings) {
  auto s = method_section<AbSettings>(settings, kName, "AB-training (method ab)");
  auto schedule = s.part(&AbSettings::schedule);
  auto policy = s.part(&AbSettings::rank_policy);

  Setting& preset =
      s.name("preset", &AbSettings::preset, ab_preset_names(),
             "where the other ab settings start from: our own choice, or those of an experiment that the authors "
             "released; 'paper' is VGG16 on CIFAR-10, and this list tells where it differs from ours");
  preset.set = [](TrainConfig& config, const Value& name) {
    ab_settings(config) = ab_preset(std::get<std::string>(name));
  };
  preset.brings_defaults = true;
  preset.shown_word = "paper";

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
                "how r is chosen per layer");
  policy.number("sigma_cutoff", &RankPolicy::cutoff, 0, 1, "keep singular values above this share of the largest");
  policy.number("ratio", &RankPolicy::ratio, 0, 1, "keep this share of all singular values").above_low = true;
  policy.number("energy", &RankPolicy::energy, 0, 1, "keep this share of the sum of squared singular values")
      .above_low = true;
  policy.number("fixed_rank", &RankPolicy::fixed, 1, 65536, "keep so many singular values");
  policy.number(
      "rank_multiple", &RankPolicy::multiple, 0, 1024,
      "round r up to a multiple of this; 0: of 8 on a GPU, which reads factors of other widths slowly, and of 1 on "
      "a CPU");
  s.choice("rest", &AbSettings::rest, {{"drop", Rest::drop}, {"keep", Rest::keep}},
           "what a cut leaves over: dropped (the paper), or kept in the model as a frozen dense tensor");
  s.choice("moments", &AbSettings::moments,
           {{"project", MomentCarry::project}, {"reset", MomentCarry::reset}, {"truncate", MomentCarry::truncate}},
           "optimizer state at a split: project onto the new factors, forget, or cut and pad");
  s.choice("execution", &AbSettings::execution,
           {{"auto", Execution::automatic}, {"factors", Execution::factors}, {"form-w", Execution::form_w}},
           "compute with two thin operations, with W = A*B, or with the cheaper of them");
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
  if (multiple == 0) multiple = rank_multiple(began);
}

std::unique_ptr<SyncStrategy> make(const TrainConfig& config, Layer& model, Comm& world, const LrSchedule& schedule) {
  return std::make_unique<AbStrategy>(model, world, ab_options(config), schedule);
}

/// Those of the trained run that --ranks-from names.
std::vector<std::int64_t> ranks_of_run(const AssumedR& assumed, const std::vector<Weight*>& weights) {
  std::vector<std::int64_t> ranks;
  bool any_cut = false;
  for (const Weight* weight : weights) {
    const auto at = std::find_if(assumed.layers.begin(), assumed.layers.end(),
                                 [&](const LayerRank& layer) { return layer.name == weight->name(); });
    AB_CHECK(at != assumed.layers.end() && at->m == weight->m() && at->n == weight->n(),
             "--ranks-from {} tells no rank of {} ({}×{}): it is the run of another model", assumed.run, weight->name(),
             weight->m(), weight->n());
    ranks.push_back(at->r);
    any_cut |= at->r < at->n;
  }
  AB_CHECK(any_cut || !assumed.as_left || weights.empty(),
           "--ranks-from {} describes a model that was left at full rank; give its run folder, whose "
           "metrics.jsonl has the "
           "ranks of its splits",
           assumed.run);
  return ranks;
}

/// The rank r of every weight after a cut.
std::vector<std::int64_t> ranks_of_policy(const RankPolicy& policy, const std::vector<Weight*>& weights) {
  AB_CHECK(policy.kind == RankPolicy::Kind::ratio || policy.kind == RankPolicy::Kind::fixed,
           "the rank policies sigma-cutoff and energy choose r from the singular values of a trained model; give "
           "--ratio, or --ranks-from with a run, to plan with");
  std::vector<std::int64_t> ranks;
  for (const Weight* weight : weights)
    ranks.push_back(policy.choose(std::vector<double>(static_cast<std::size_t>(weight->n()), 1.0)));
  return ranks;
}

MethodPlan plan(const TrainConfig& config, Layer& model, const PlannedRun& run) {
  check(config, model, run.world_size);
  AbOptions options = ab_options(config);
  if (run.assumed.ratio > 0)
    options.rank_policy.kind = RankPolicy::Kind::ratio, options.rank_policy.ratio = run.assumed.ratio;
  keep_at_full_rank(options.always_sync, model);
  const std::vector<Weight*> eligible = eligible_weights(model);
  return plan_ab(model, options,
                 run.assumed.run.empty() ? ranks_of_policy(options.rank_policy, eligible)
                                         : ranks_of_run(run.assumed, eligible),
                 run);
}

}  // namespace

std::int64_t rank_multiple(const TrainConfig& config) {
  if (const std::int64_t given = ab_settings(config).rank_policy.multiple; given > 0) return given;
  return config.device == "cpu" ? 1 : 8;
}

AbOptions ab_options(const TrainConfig& config) {
  AbOptions options = ab_settings(config);
  options.rank_policy.multiple = rank_multiple(config);
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
          .laws = {.small = "warmup_steps = 2\ncycle_steps = 5\nfull_rank_steps = 2\nlr_rebound_steps = 1",
                   .phases = {"warmup", "split", "low-rank", "sync", "rebound"},
                   .lossless = "warmup_steps = 1000000",
                   .unusable_by_three = "group_size = 4"}};
}

}  // namespace ab
