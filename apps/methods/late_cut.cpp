// SPDX-License-Identifier: MIT
//
// The late cut (ablowrank/late_cut.h).
#include "apps/methods/late_cut.h"

#include "ablowrank/late_cut.h"
#include "ablowrank/split.h"
#include "apps/methods/method.h"
#include "engine/sync/acpsgd.h"
#include "engine/sync/local.h"
#include "engine/sync/powersgd.h"

namespace ab {
namespace {

constexpr const char* kName = "late-cut";

/// 16-bit gradients, and factors of gradients at a quarter of the full rank, or one at a time at half of it.
void bring_defaults(TrainConfig& config) {
  config.comm_dtype = DType::bfloat16;
  config.of<LateCutSettings>() = {};
  config.of<PowerSgdOptions>() = {{.rank = 0.25, .min_rate = 1.5}};  // square gradients shrink to half
  AcpSgdOptions& acpsgd = config.of<AcpSgdOptions>() = {};
  acpsgd.rank = 0.5, acpsgd.min_rate = 1.5;  // as many bytes
  config.of<LocalOptions>() = {};
}

void nodes(TrainConfig& config) {
  LateCutSettings& cut = config.of<LateCutSettings>();
  cut.full_rank_method = cut.low_rank_method = "local";
  config.of<LocalOptions>().node_size = 0;
}

void declare(std::vector<Setting>& settings) {
  auto s = method_section<LateCutSettings>(settings, kName, "Late cut (method late-cut)");
  s.numbers("at", &LateCutSettings::at, 0, 1, "shares of the run after which weights are cut").above_low = true;
  s.choice(
      "rank_policy", &LateCutSettings::rank_policy,
      {{"loss-share", RanksBy::loss_share}, {"loss-budget", RanksBy::loss_budget}, {"ratio", RanksBy::ratio}},
      "how r is chosen: the cheapest directions that hold a share of the loss, in the mean over weights; those worth "
      "most for what they cost, within a share of all elements and operations; or a share of every weight's own");
  s.numbers(
       "keep", &LateCutSettings::keep, 0, 1,
       "that share, one for all cuts or one for each; when not given 0.995 of the loss, a budget of 0.25, a ratio of "
       "0.5. A weight whose factors would not be smaller stays dense")
      .above_low = true;
  s.number("gather_steps", &LateCutSettings::gather_steps, 1, kMany,
           "steps before a cut in which outputs and their gradients are observed, as far as there are so many");
  s.choice(
      "conv_factors", &LateCutSettings::conv_factors,
      {{"spatial", ConvFactors::spatial}, {"channel", ConvFactors::channel}},
      "factors of a k*k convolution: 1*k to r channels and k*1 to the output, or k*k to r channels and 1*1; without "
      "padding always the latter");
  s.value("full_rank_method", &LateCutSettings::full_rank_method,
          "the method that keeps ranks together until the first cut");
  s.value("low_rank_method", &LateCutSettings::low_rank_method, "the one that keeps them together after it");
}

std::vector<std::string> methods_used(const TrainConfig& config) {
  return {late_cut_settings(config).full_rank_method, late_cut_settings(config).low_rank_method};
}

void check(const TrainConfig& config, Layer& model, int world_size) {
  for (const Method* method : {&full_rank_method(config), &low_rank_method(config)})
    if (method->check) method->check(config, model, world_size);
  const bool wants_nodes = config.preset == "nodes" && world_size > 1;
  const int of_local = config.of<LocalOptions>().node_size;
  AB_CHECK(!wants_nodes || (of_local > 0 ? of_local : node_layout(config, world_size).node_size) > 1,
           "--preset nodes finds one rank on each node; say how many there are with --ranks-per-node or "
           "--local.node-size");
  AB_CHECK(
      !full_rank_method(config).drifts || low_rank_method(config).drifts,
      "--late-cut.full-rank-method {} leaves every rank with optimizer state of its own, with which {} cannot go on; give "
      "--late-cut.low-rank-method {} too",
      full_rank_method(config).name, low_rank_method(config).name, full_rank_method(config).name);
  late_cut_options(config).validate();
}

void check_length(const TrainConfig& config, const LrSchedule& schedule) { cut_schedule(config, schedule); }

std::unique_ptr<SyncStrategy> make(const TrainConfig& config, Layer& model, Comm& world, const LrSchedule& schedule) {
  const LateCutOptions options = late_cut_options(config);
  for (Weight* weight : eligible_weights(model)) weight->set_conv_factors(options.conv_factors);
  return std::make_unique<LateCutStrategy>(model, world, options, cut_schedule(config, schedule),
                                           make_strategy(full_rank_method(config), config, model, world, schedule),
                                           [&config, &world, schedule](Replica factors) {
                                             return low_rank_method(config).average(config, std::move(factors), world,
                                                                                    schedule);
                                           });
}

const Method& averaging_method(const char* flag, const std::string& name) {
  const Method& method = find_method(name);
  std::vector<const char*> allowed;
  for (const Method& other : methods())
    if (other.average) allowed.push_back(other.name);
  AB_CHECK(method.average, "--late-cut.{} {}: a late cut can keep ranks together by {}", flag, method.name,
           fmt::join(allowed, ", "));
  return method;
}

}  // namespace

CutSchedule cut_schedule(const TrainConfig& config, const LrSchedule& schedule) {
  return CutSchedule(late_cut_options(config), schedule.total_steps, evaluation_period(config, schedule));
}

LateCutOptions late_cut_options(const TrainConfig& config) {
  LateCutOptions options = late_cut_settings(config);
  options.rank_multiple = rank_multiple(config);
  options.execution = config.execution;
  options.sync_bn = config.sync_bn;
  return options;
}

const Method& full_rank_method(const TrainConfig& config) {
  return averaging_method("full-rank-method", late_cut_settings(config).full_rank_method);
}

const Method& low_rank_method(const TrainConfig& config) {
  return averaging_method("low-rank-method", late_cut_settings(config).low_rank_method);
}

Method late_cut_method() {
  return {
      .name = kName,
      .declare = declare,
      .presets = {{"nodes",
                   "kept together by method local, nodes of --ranks-per-node by gradients: for fast links inside nodes",
                   nodes}},
      .bring_defaults = bring_defaults,
      .uses = methods_used,
      .check = check,
      .check_length = check_length,
      .make = make,
      .told = told_late_cut,
      .dense_start = true,
      .has_factors = true,
      .has_ranks = true};
}

}  // namespace ab
