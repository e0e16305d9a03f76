// SPDX-License-Identifier: MIT
//
// PowerSGD (arXiv 1905.13727; engine/sync/powersgd.h).
#include "engine/sync/powersgd.h"

#include <cmath>

#include "apps/methods/compressed.h"

namespace ab {
namespace {

/// A whole number, which a share below 1 need not be.
void check(const TrainConfig& config, Layer&, int) {
  const double rank = config.of<PowerSgdOptions>().rank;
  AB_CHECK(rank < 1 || rank == std::floor(rank), "--powersgd.rank {} is neither a whole number nor a share below 1",
           rank);
}

/// From the first step on, whatever is a matrix.
void paper(TrainConfig& config) {
  config.of<PowerSgdOptions>() = {{.rank = 2, .min_rate = 0}};
  config.dense_steps = 0;
}

void torch_hook(TrainConfig& config) {
  config.of<PowerSgdOptions>() = {{.rank = 1}};
  config.dense_steps = 1000;
}

void declare(std::vector<Setting>& settings) {
  auto s = method_section<PowerSgdOptions>(settings, PowerSgdStrategy::kName, "PowerSGD (method powersgd)");
  declare_gradient_rank(s);
  s.number("min_rate", &PowerSgdOptions::min_rate, 0, 1e9,
           "gradients whose factors are not so many times smaller are exchanged in full");
}

std::unique_ptr<SyncStrategy> average(const TrainConfig& config, Replica replica, Comm& world,
                                      const LrSchedule& schedule) {
  return std::make_unique<PowerSgdStrategy>(std::move(replica), world, config.of<PowerSgdOptions>(),
                                            compression_start(config, schedule));
}

}  // namespace

Method powersgd_method() {
  return {.name = PowerSgdStrategy::kName,
          .declare = declare,
          .presets = {{"paper", "the authors' experiments at rank 2", paper},
                      {"torch-hook", "the defaults of PyTorch's hook", torch_hook}},
          .check = check,
          .average = average,
          .dense_start = true};
}

}  // namespace ab
