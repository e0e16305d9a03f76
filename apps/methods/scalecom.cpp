// SPDX-License-Identifier: MIT
//
// ScaleCom (arXiv 2104.11125; engine/sync/scalecom.h).
#include "engine/sync/scalecom.h"

#include <algorithm>

#include "apps/methods/compressed.h"

namespace ab {
namespace {

void large_batch(TrainConfig& config) {
  ScaleComOptions& options = config.of<ScaleComOptions>() = {};
  options.beta = 0.1;
}

void declare(std::vector<Setting>& settings) {
  auto s = method_section<ScaleComOptions>(settings, ScaleComStrategy::kName, "ScaleCom (method scalecom)");
  s.number("rate", &ScaleComOptions::rate, 1, kMostChunkRate, "C: of so many neighbouring elements one is sent");
  s.value("rates", &ScaleComOptions::rates,
          "other rates, NAME=C separated by commas, for parameters whose names begin so; also for those that are "
          "exchanged in full otherwise");
  s.number("beta", &ScaleComOptions::beta, 0, 1, "share of a new residual that enters the memory; 1: no filter")
      .above_low = true;
}

void check(const TrainConfig& config, Layer& model, int) {
  const auto& options = config.of<ScaleComOptions>();
  for (const std::string& rate : options.rates) {
    const std::string prefix = rate.substr(0, rate.rfind('='));
    const std::vector<Param*> params = inventory_of(model).params;
    for (const Param* param : params) scalecom_rate(*param, options);
    AB_CHECK(std::any_of(params.begin(), params.end(), [&](const Param* p) { return p->name.starts_with(prefix); }),
             "--scalecom.rates: the model has no parameter whose name begins with '{}'", prefix);
  }
}

std::unique_ptr<SyncStrategy> average(const TrainConfig& config, Replica replica, Comm& world,
                                      const LrSchedule& schedule) {
  const auto& options = config.of<ScaleComOptions>();
  return std::make_unique<ScaleComStrategy>(std::move(replica), world, options, compression_start(config, schedule));
}

}  // namespace

Method scalecom_method() {
  return {.name = ScaleComStrategy::kName,
          .declare = declare,
          .presets = {{"large-batch", "the filter that is reported for large batches", large_batch}},
          .check = check,
          .average = average,
          .dense_start = true};
}

}  // namespace ab
