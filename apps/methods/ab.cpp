// SPDX-License-Identifier: MIT
//
// AB-training (arXiv 2405.01067; ablowrank/ab_strategy.h).
#include "apps/methods/ab.h"

#include <algorithm>

#include "ablowrank/ab_plan.h"
#include "ablowrank/ab_strategy.h"
#include "ablowrank/both_plan.h"
#include "ablowrank/both_strategy.h"
#include "ablowrank/loss_ranks.h"
#include "ablowrank/split.h"
#include "apps/methods/method.h"
#include "apps/methods/powersgd.h"
#include "apps/settings/nearest_name.h"

namespace ab {
namespace {

constexpr const char* kName = "ab";
constexpr double kMany = 1e15;  // "for ever" for a number of steps, and exact in a double

void declare_both(const Section<AbSettings>& s) {
  auto cut = s.part(&AbSettings::cut);
  cut.numbers("cut_at", &CutOptions::at, 0, 1, "train both: shares of the run after which weights are cut").above_low =
      true;
  cut.numbers("cut_keep", &CutOptions::keep, 0, 65536,
              "what each cut keeps, in place of the rank policy's own number (loss_share, budget, ratio, ...)");
  cut.number("gather_steps", &CutOptions::gather_steps, 1, kMany,
             "steps before a cut in which outputs and their gradients are observed, as far as there are so many");
  cut.choice(
      "directions", &CutOptions::directions, {{"loss", Directions::loss}, {"weight", Directions::weight}},
      "directions that a cut keeps: those of the outputs that the loss depends on most, or of the largest singular "
      "values");
  cut.number("lr_factor", &CutOptions::lr_factor, 0, 100, "of the learning rate, from the first cut on").above_low =
      true;
  cut.number("factor_decay", &CutOptions::factor_decay, 0, 100,
             "of the weight decay of factors; 0.5 lets W = A*B shrink as a dense weight does");
  s.value("full_rank_method", &AbSettings::full_rank_method, "train both: the method that trains until the first cut");
}

/// All that a preset of AB-training stands for. Both factors come with 16-bit gradients, and with PowerSGD at a rank that
/// costs no accuracy.
void start_from(const std::string& preset, TrainConfig& config) {
  AbSettings& ab = ab_settings(config) = ab_preset(preset);
  if (config.method != kName) return;
  const bool both = ab.train == TrainedFactors::both;
  config.comm_dtype = both ? DType::bfloat16 : TrainConfig{}.comm_dtype;
  powersgd_settings(config).ratio = both ? 0.25 : PowerSgdSettings{}.ratio;
}

/// Where the others start from.
void declare_start(const Section<AbSettings>& s) {
  Setting& preset = s.name(
      "preset", &AbSettings::preset, ab_preset_names(),
      "where the other ab settings start from: both factors on all ranks; or the paper's groups, as we choose or as an "
      "experiment that the authors released; 'paper' is VGG16 on CIFAR-10, and this list tells where it differs from "
      "the default");
  preset.set = [](TrainConfig& config, const Value& name) { start_from(std::get<std::string>(name), config); };
  preset.brings_defaults = true;
  preset.shown_word = "paper";

  Setting& train = s.choice(
      "train", &AbSettings::train, {{"both", TrainedFactors::both}, {"groups", TrainedFactors::groups}},
      "full rank first, then a cut, and both factors on all ranks; or A or B by group, in cycles that rejoin (the paper), "
      "which is preset groups unless another is given");
  train.set = [](TrainConfig& config, const Value& word) {
    const bool groups = std::get<std::string>(word) == "groups";
    const bool are_groups = ab_settings(config).train == TrainedFactors::groups;
    if (are_groups != groups) start_from(groups ? "groups" : "default", config);
  };
  train.brings_defaults = true;
  train.before = "groups";
}

void declare(std::vector<Setting>& settings) {
  auto s = method_section<AbSettings>(settings, kName, "AB-training (method ab)");
  declare_start(s);
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
  policy.choice(
      "rank_policy", &RankPolicy::kind,
      {{"loss-share", RankPolicy::Kind::loss_share},
       {"loss-budget", RankPolicy::Kind::loss_budget},
       {"sigma-cutoff", RankPolicy::Kind::sigma_cutoff},
       {"ratio", RankPolicy::Kind::ratio},
       {"energy", RankPolicy::Kind::energy},
       {"fixed", RankPolicy::Kind::fixed}},
      "how r is chosen per layer: by what directions are worth to the loss (train both), or by singular values");
  policy
      .number("loss_share", &RankPolicy::loss_share, 0, 1,
              "keep this share of what all directions are worth to the loss")
      .above_low = true;
  policy
      .number("budget", &RankPolicy::budget, 0, 1,
              "keep the directions worth most, until all weights cost this share of their elements and operations")
      .above_low = true;
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
  declare_both(s);
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

const char* full_rank_method_name(const TrainConfig& config) {
  const AbSettings& ab = ab_settings(config);
  return ab.train == TrainedFactors::both ? ab.full_rank_method.c_str() : nullptr;
}

/// The method that trains at full rank before factors are trained together.
const Method& full_rank_method(const TrainConfig& config) {
  const Method& method = find_method(ab_settings(config).full_rank_method);
  std::vector<const char*> allowed;
  for (const Method& other : methods())
    if (other.averages_gradients) allowed.push_back(other.name);
  AB_CHECK(method.averages_gradients, "--ab.full-rank-method {}: AB-training can begin with {}", method.name,
           fmt::join(allowed, ", "));
  return method;
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

/// Those of a split of the trained run that --ranks-from names.
std::vector<std::int64_t> ranks_of_run(const AssumedR& assumed, const std::vector<LayerRank>& split,
                                       const std::vector<Weight*>& weights) {
  std::vector<std::int64_t> ranks;
  bool any_cut = false;
  for (const Weight* weight : weights) {
    const auto at =
        std::find_if(split.begin(), split.end(), [&](const LayerRank& layer) { return layer.name == weight->name(); });
    AB_CHECK(at != split.end() && at->m == weight->m() && at->n == weight->n(),
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

/// The ranks after every cut of the trained run that --ranks-from names; a weight that it does not list stayed dense.
std::vector<std::vector<std::int64_t>> ranks_of_cuts(const AssumedR& assumed, const std::vector<Weight*>& weights,
                                                     std::size_t cuts) {
  AB_CHECK(assumed.splits.size() == cuts, "--ranks-from {}: that run has {} cuts, this one {}", assumed.run,
           assumed.splits.size(), cuts);
  std::vector<std::vector<std::int64_t>> ranks;
  for (std::vector<LayerRank> split : assumed.splits) {
    for (const Weight* weight : weights)
      if (std::none_of(split.begin(), split.end(), [&](const LayerRank& l) { return l.name == weight->name(); }))
        split.push_back({weight->name(), weight->m(), weight->n(), weight->n()});
    ranks.push_back(ranks_of_run(assumed, split, weights));
  }
  return ranks;
}

MethodPlan plan_training_both(const TrainConfig& config, const AbOptions& options, Layer& model,
                              const PlannedRun& run) {
  const std::vector<Weight*> weights = eligible_weights(model);
  const CutSchedule schedule(options.cut, observes(options), run.total_steps, run.evaluation_period());
  const std::size_t cuts = schedule.cuts().size();
  const auto planned = [&](const std::vector<std::vector<std::int64_t>>& ranks, bool at_most = false) {
    return plan_both(model, options, schedule, ranks, at_most,
                     full_rank_method(config).plan(config, model, full_rank_part(run, schedule)), run);
  };
  if (!run.assumed.run.empty()) return planned(ranks_of_cuts(run.assumed, weights, cuts));
  std::vector<std::vector<std::int64_t>> most(cuts), least(cuts);
  bool known = true;
  for (std::size_t k = 0; k < cuts; ++k) {
    RankPolicy policy = policy_of_cut(options, k);
    if (run.assumed.ratio > 0)
      policy = {.kind = RankPolicy::Kind::ratio, .ratio = run.assumed.ratio, .multiple = policy.multiple};
    known &= policy.kind == RankPolicy::Kind::ratio || policy.kind == RankPolicy::Kind::fixed;
    if (known) most[k] = ranks_of_policy(policy, weights);
    for (const Weight* weight : weights) {
      if (!known) most[k].push_back(weight->n());
      least[k].push_back(policy.needs_data() ? RankRounding{policy.multiple}.apply(0, weight->n())
                                             : std::min(policy.multiple, weight->n()));
    }
  }
  MethodPlan plan = planned(most, !known);
  if (!known) plan.least = planned(least).traffic;
  return plan;
}

MethodPlan plan(const TrainConfig& config, Layer& model, const PlannedRun& run) {
  check(config, model, run.world_size);
  AbOptions options = ab_options(config);
  keep_at_full_rank(options.always_sync, model);
  if (options.train == TrainedFactors::both) return plan_training_both(config, options, model, run);
  if (run.assumed.ratio > 0)
    options.rank_policy.kind = RankPolicy::Kind::ratio, options.rank_policy.ratio = run.assumed.ratio;
  const std::vector<Weight*> eligible = eligible_weights(model);
  return plan_ab(model, options,
                 run.assumed.run.empty() ? ranks_of_policy(options.rank_policy, eligible)
                                         : ranks_of_run(run.assumed, run.assumed.splits.back(), eligible),
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
  return {
      .name = kName,
      .declare = declare,
      .bring_defaults = [](TrainConfig& config) { start_from("default", config); },
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
