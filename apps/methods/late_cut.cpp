// SPDX-License-Identifier: MIT
//
// The late cut (ablowrank/late_cut.h).
#include "apps/methods/late_cut.h"

#include "ablowrank/late_cut.h"
#include "ablowrank/split.h"
#include "apps/methods/acpsgd.h"
#include "apps/methods/factors.h"
#include "apps/methods/local.h"
#include "apps/methods/method.h"
#include "apps/methods/nodes.h"
#include "apps/methods/powersgd.h"

namespace ab {
namespace {

constexpr const char* kName = "late-cut";

/// A preset, and where the method is the late cut what else goes with it: 16-bit gradients, PowerSGD at a quarter of the full
/// rank, and with "nodes" nodes as --ranks-per-node has them.
void start_from(const std::string& preset, TrainConfig& config) {
  LateCutSettings& cut = late_cut_settings(config) = {};
  cut.preset = preset;
  if (preset == "nodes") cut.full_rank_method = cut.low_rank_method = "local";
  if (config.method != kName) return;
  config.comm_dtype = DType::bfloat16;
  PowerSgdSettings& powersgd = powersgd_settings(config) = {};
  powersgd.ratio = 0.25, powersgd.min_rate = 1.5;  // square gradients shrink to half
  AcpSgdSettings& acpsgd = acpsgd_settings(config) = {};
  acpsgd.ratio = 0.5, acpsgd.min_rate = 1.5;  // as many bytes, one factor at a time
  LocalSettings& local = local_settings(config) = {};
  if (preset == "nodes") local.node_size = 0;
}

void declare_preset(const Section<LateCutSettings>& s) {
  Setting& preset = s.name(
      "preset", &LateCutSettings::preset, {"default", "nodes"},
      "where the other settings start from. Both bring --comm-dtype bf16, --powersgd.ratio 0.25, --acpsgd.ratio 0.5 and a "
      "min-rate of 1.5 for both; 'nodes': kept together by method local with --local.node-size 0, for fast links inside "
      "nodes, which --ranks-per-node tells");
  preset.set = [](TrainConfig& config, const Value& name) { start_from(std::get<std::string>(name), config); };
  preset.brings_defaults = true;
}

void declare(std::vector<Setting>& settings) {
  constexpr double kMany = 1e15;  // "for ever" for a number of steps, and exact in a double
  auto s = method_section<LateCutSettings>(settings, kName, "Late cut (method late-cut)");
  declare_preset(s);
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
  declare_rank_multiple(s, &LateCutSettings::rank_multiple);
  s.number("gather_steps", &LateCutSettings::gather_steps, 1, kMany,
           "steps before a cut in which outputs and their gradients are observed, as far as there are so many");
  s.choice(
      "conv_factors", &LateCutSettings::conv_factors,
      {{"spatial", ConvFactors::spatial}, {"channel", ConvFactors::channel}},
      "what a convolution of k*k becomes: 1*k to r channels and k*1 to the output, or k*k to r channels and 1*1; without "
      "padding always the latter");
  declare_execution(s);
  s.value("full_rank_method", &LateCutSettings::full_rank_method,
          "the method that keeps ranks together until the first cut");
  s.value("low_rank_method", &LateCutSettings::low_rank_method, "the one that keeps them together after it");
}

std::vector<std::string> methods_used(const TrainConfig& config) {
  return {late_cut_settings(config).full_rank_method, late_cut_settings(config).low_rank_method};
}

void settle(TrainConfig& config, const TrainConfig& began) {
  std::int64_t& multiple = late_cut_settings(config).rank_multiple;
  if (multiple == 0) multiple = rank_multiple(late_cut_settings(began).rank_multiple, began);
}

void check(const TrainConfig& config, Layer& model, int world_size) {
  for (const Method* method : {&full_rank_method(config), &low_rank_method(config)})
    if (method->check) method->check(config, model, world_size);
  const bool wants_nodes = late_cut_settings(config).preset == "nodes" && world_size > 1;
  AB_CHECK(!wants_nodes || node_layout(config, local_settings(config).node_size, world_size).node_size > 1,
           "--late-cut.preset nodes finds one rank on each node; say how many there are with --ranks-per-node or "
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
  options.rank_multiple = rank_multiple(options.rank_multiple, config);
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
  return {.name = kName,
          .declare = declare,
          .bring_defaults = [](TrainConfig& config) { start_from("default", config); },
          .uses = methods_used,
          .settle = settle,
          .check = check,
          .check_length = check_length,
          .make = make,
          .told = told_late_cut,
          .has_ranks = true};
}

}  // namespace ab
