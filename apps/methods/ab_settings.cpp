// SPDX-License-Identifier: MIT
//
// The settings of AB-training, and the presets that they start from.
#include "apps/methods/ab.h"

#include "apps/methods/acpsgd.h"
#include "apps/methods/local.h"
#include "apps/methods/method.h"
#include "apps/methods/powersgd.h"

namespace ab {
namespace {

constexpr double kMany = 1e15;  // "for ever" for a number of steps, and exact in a double

struct ReleasedExperiment {
  const char* name;
  std::int64_t warmup, cycle, full_rank, rebound;  // W, S, D, R
  SyncMode sync;
  int group_size;
};

// "2k" to "64k" are global batches; groups of 4 are the GPUs of a node.
constexpr ReleasedExperiment kReleased[] = {
    {"paper", 4330, 759, 60, 267, SyncMode::only_b, 4},
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
};

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
  s.value("full_rank_method", &AbSettings::full_rank_method,
          "train both: the method that keeps ranks together until the first cut");
  s.value("low_rank_method", &AbSettings::low_rank_method, "train both: the one that keeps them together after it")
      .before = std::string(kBaseline);
}

/// Where the others start from.
void declare_start(const Section<AbSettings>& s) {
  Setting& preset = s.name(
      "preset", &AbSettings::preset, ab_preset_names(),
      "where the other ab settings start from: both factors on all ranks, which also brings --comm-dtype bf16, "
      "--powersgd.ratio 0.25, --acpsgd.ratio 0.5 and a min-rate of 1.5 for both; 'nodes': kept together by method local with --local.node-size 0, "
      "for fast links inside nodes, which --ranks-per-node tells; or the paper's groups, as we choose or as an experiment that the authors released; "
      "'paper' is VGG16 on CIFAR-10, and this list tells where it differs from the default");
  preset.set = [](TrainConfig& config, const Value& name) { start_ab_from(std::get<std::string>(name), config); };
  preset.brings_defaults = true;
  preset.shown_word = "paper";

  Setting& train = s.choice(
      "train", &AbSettings::train, {{"both", TrainedFactors::both}, {"groups", TrainedFactors::groups}},
      "full rank first, then a cut, and both factors on all ranks; or A or B by group, in cycles that rejoin (the paper), "
      "which is preset groups unless another is given");
  train.set = [](TrainConfig& config, const Value& word) {
    const bool groups = std::get<std::string>(word) == "groups";
    const bool are_groups = ab_settings(config).train == TrainedFactors::groups;
    if (are_groups != groups) start_ab_from(groups ? "groups" : "default", config);
  };
  train.brings_defaults = true;
  train.before = std::string("groups");
}

}  // namespace

void declare_ab(std::vector<Setting>& settings) {
  auto s = method_section<AbSettings>(settings, kAbName, "AB-training (method ab)");
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
      "how r is chosen: of all layers together by what directions are worth to the loss (train both), or of each by "
      "singular values");
  policy
      .number(
          "loss_share", &RankPolicy::loss_share, 0, 1,
          "keep the cheapest directions that hold this share of what each weight is worth, in the mean over weights")
      .above_low = true;
  policy
      .number("budget", &RankPolicy::budget, 0, 1,
              "keep the directions worth most for what they cost, within this share of all elements and operations")
      .above_low = true;
  policy.number("sigma_cutoff", &RankPolicy::cutoff, 0, 1, "keep singular values above this share of the largest");
  policy
      .number(
          "ratio", &RankPolicy::ratio, 0, 1,
          "keep this share of all singular values; what would not be smaller stays dense: a 3*3 convolution of as many "
          "inputs as outputs from 0.5 on with spatial factors, from 0.9 on with channel factors")
      .above_low = true;
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
  s.choice(
       "conv_factors", &AbSettings::conv_factors,
       {{"spatial", ConvFactors::spatial}, {"channel", ConvFactors::channel}},
       "what a convolution of k*k becomes: 1*k to r channels and k*1 to the output, or k*k to r channels and 1*1 (the "
       "paper); without padding always the latter")
      .before = std::string("channel");
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

const std::vector<std::string>& ab_preset_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all{"default", "nodes", "groups"};
    for (const ReleasedExperiment& experiment : kReleased) all.push_back(experiment.name);
    return all;
  }();
  return names;
}

AbSettings ab_preset(const std::string& name) {
  AbSettings ab;
  ab.preset = name;
  if (name == "nodes") ab.full_rank_method = ab.low_rank_method = "local";
  if (name == "default" || name == "nodes") return ab;
  ab.train = TrainedFactors::groups;
  ab.rank_policy.loss_share = RankPolicy{}.loss_share;
  ab.full_rank_method = ab.low_rank_method = kBaseline;
  ab.cut = {};
  ab.rank_policy.kind = RankPolicy::Kind::ratio;
  ab.conv_factors = ConvFactors::channel;
  for (const ReleasedExperiment& experiment : kReleased) {
    if (name != experiment.name) continue;
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
  }
  return ab;
}

void start_ab_from(const std::string& preset, TrainConfig& config) {
  AbSettings& ab = ab_settings(config) = ab_preset(preset);
  if (config.method != kAbName) return;
  const bool both = ab.train == TrainedFactors::both;
  config.comm_dtype = both ? DType::bfloat16 : TrainConfig{}.comm_dtype;
  PowerSgdSettings& powersgd = powersgd_settings(config) = {};
  AcpSgdSettings& acpsgd = acpsgd_settings(config) = {};
  if (both) {
    powersgd.ratio = 0.25, powersgd.min_rate = 1.5;  // square gradients shrink to half
    acpsgd.ratio = 0.5, acpsgd.min_rate = 1.5;       // as many bytes, one factor at a time
  }
  LocalSettings& local = local_settings(config) = {};
  if (preset == "nodes") local.node_size = 0;
}

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

}  // namespace ab
