// SPDX-License-Identifier: MIT
//
// Gradients of which ranks send the largest elements: ScaleCom (arXiv 2104.11125; engine/sync/scalecom.h), and MSTopK and
// HiTopKComm (arXiv 2010.10458; engine/sync/mstopk.h and hitopk.h).
#include <algorithm>

#include "apps/methods/method.h"
#include "engine/sync/hitopk.h"
#include "engine/sync/mstopk.h"
#include "engine/sync/scalecom.h"

namespace ab {
namespace {

void declare_scalecom(std::vector<Setting>& settings) {
  auto s = method_section<ScaleComOptions>(settings, ScaleComStrategy::kName, "ScaleCom (method scalecom)");
  s.number("rate", &ScaleComOptions::rate, 1, kMostChunkRate, "C: of so many neighbouring elements one is sent");
  s.value("rates", &ScaleComOptions::rates,
          "other rates, NAME=C separated by commas, for parameters whose names begin so; also for those that are "
          "exchanged in full otherwise");
  s.number("beta", &ScaleComOptions::beta, 0, 1, "share of a new residual that enters the memory; 1: no filter")
      .above_low = true;
}

void large_batch(TrainConfig& config) {
  ScaleComOptions& options = config.of<ScaleComOptions>() = {};
  options.beta = 0.1;
}

void check_rates(const TrainConfig& config, Layer& model, int) {
  const auto& options = config.of<ScaleComOptions>();
  const std::vector<Param*> params = inventory_of(model).params;
  for (const std::string& rate : options.rates) {
    const std::string prefix = rate.substr(0, rate.rfind('='));
    for (const Param* param : params) scalecom_rate(*param, options);
    AB_CHECK(std::ranges::any_of(params, [&](const Param* p) { return p->name.starts_with(prefix); }),
             "--scalecom.rates: the model has no parameter whose name begins with '{}'", prefix);
  }
}

void declare_mstopk(std::vector<Setting>& settings) {
  auto s = method_section<MsTopkOptions>(settings, MsTopkStrategy::kName, "MSTopK (method mstopk)");
  s.number("density", &MsTopkOptions::density, 0, 1,
           "share of all gradient elements that a rank sends, float32 values with their indices")
      .above_low = true;
  s.number("rounds", &MsTopkOptions::rounds, 1, 64, "rounds of the search for the threshold");
}

void declare_hitopk(std::vector<Setting>& settings) {
  auto s = method_section<HiTopkOptions>(settings, HiTopkStrategy::kName, "HiTopKComm (method hitopk)");
  s.number("density", &HiTopkOptions::density, 0, 1, "share of its slice that a rank sends to other nodes").above_low =
      true;
  s.number("rounds", &HiTopkOptions::rounds, 1, 64, "rounds of the search for the threshold");
}

/// Nodes are whole ones as --ranks-per-node says, if there are several, or else every rank is one.
std::unique_ptr<SyncStrategy> average_hitopk(const TrainConfig& config, Replica replica, Comm& world,
                                             const LrSchedule& schedule) {
  const int node = config.ranks_per_node;
  const bool has_nodes = node > 0 && node < world.size() && world.size() % node == 0;
  return std::make_unique<HiTopkStrategy>(std::move(replica), world, has_nodes ? node : 1, config.of<HiTopkOptions>(),
                                          compression_start(config, schedule));
}

}  // namespace

Method scalecom_method() {
  return {.name = ScaleComStrategy::kName,
          .declare = declare_scalecom,
          .presets = {{"large-batch", "the filter that is reported for large batches", large_batch}},
          .check = check_rates,
          .average = average_compressed<ScaleComStrategy, ScaleComOptions>,
          .dense_start = true};
}

Method mstopk_method() {
  return {.name = MsTopkStrategy::kName,
          .declare = declare_mstopk,
          .average = average_compressed<MsTopkStrategy, MsTopkOptions>,
          .dense_start = true};
}

Method hitopk_method() {
  return {.name = HiTopkStrategy::kName,
          .declare = declare_hitopk,
          .average = average_hitopk,
          .dense_start = true,
          .by_nodes = true};
}

}  // namespace ab
