// SPDX-License-Identifier: MIT
//
// MSTopK (arXiv 2010.10458; engine/sync/mstopk.h).
#include "engine/sync/mstopk.h"

#include <numeric>

#include "apps/methods/compressed.h"

namespace ab {
namespace {

void declare(std::vector<Setting>& settings) {
  auto s = method_section<MsTopkOptions>(settings, MsTopkStrategy::kName, "MSTopK (method mstopk)");
  s.number("density", &MsTopkOptions::density, 0, 1,
           "share of all gradient elements that a rank sends, float32 values with their indices")
      .above_low = true;
  s.number("rounds", &MsTopkOptions::rounds, 1, 64, "rounds of the search for the threshold");
}

std::unique_ptr<SyncStrategy> average(const TrainConfig& config, Replica replica, Comm& world,
                                      const LrSchedule& schedule) {
  const auto& options = config.of<MsTopkOptions>();
  return std::make_unique<MsTopkStrategy>(std::move(replica), world, options, compression_start(config, schedule));
}

}  // namespace

Method mstopk_method() {
  return {.name = MsTopkStrategy::kName, .declare = declare, .average = average, .dense_start = true};
}

}  // namespace ab
