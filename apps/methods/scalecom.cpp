// SPDX-License-Identifier: MIT
//
// ScaleCom (arXiv 2104.11125; engine/sync/scalecom.h).
#include "engine/sync/scalecom.h"

#include <algorithm>

#include "apps/methods/compressed.h"

namespace ab {
namespace {

struct ScaleComSettings : ScaleComOptions {
  std::string preset = "default";

  bool operator==(const ScaleComSettings&) const = default;
};

ScaleComSettings large_batch() {
  ScaleComSettings settings;
  settings.beta = 0.1;
  return settings;
}

void declare(std::vector<Setting>& settings) {
  auto s = method_section<ScaleComSettings>(settings, ScaleComStrategy::kName, "ScaleCom (method scalecom)");
  declare_preset<ScaleComSettings>(
      s, {{"default", {}}, {"large-batch", large_batch()}},
      "where the other scalecom settings start from: our own choice, or the filter that is "
      "reported for large batches");
  s.number("rate", &ScaleComSettings::rate, 1, kMostChunkRate, "C: of so many neighbouring elements one is sent");
  s.value("rates", &ScaleComSettings::rates,
          "other rates, NAME=C separated by commas, for parameters whose names begin so; also for those that are "
          "exchanged in full otherwise");
  s.number("beta", &ScaleComSettings::beta, 0, 1, "share of a new residual that enters the memory; 1: no filter")
      .above_low = true;
  declare_dense_steps(s);
}

void check(const TrainConfig& config, Layer& model, int) {
  const auto& options = config.method_options.of<ScaleComSettings>();
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
  const auto& options = config.method_options.of<ScaleComSettings>();
  return std::make_unique<ScaleComStrategy>(std::move(replica), world, options,
                                            compression_start(config, options.dense_steps, schedule));
}

}  // namespace

Method scalecom_method() {
  return {.name = ScaleComStrategy::kName, .declare = declare, .check = check, .average = average};
}

}  // namespace ab
