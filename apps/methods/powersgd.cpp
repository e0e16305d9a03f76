// SPDX-License-Identifier: MIT
//
// PowerSGD (arXiv 1905.13727; engine/sync/powersgd.h).
#include "apps/methods/powersgd.h"

#include "apps/methods/compressed.h"

namespace ab {
namespace {

/// Those of the communication hook that comes with PyTorch.
PowerSgdSettings torch_hook() {
  PowerSgdSettings settings;
  settings.rank = 1;
  settings.dense_steps = 1000;
  return settings;
}

/// Those of the authors' experiments at rank 2: from the first step on, whatever is a matrix.
PowerSgdSettings paper() {
  PowerSgdSettings settings;
  settings.rank = 2;
  settings.min_rate = 0;
  settings.dense_steps = 0;
  return settings;
}

void declare(std::vector<Setting>& settings) {
  auto s = method_section<PowerSgdSettings>(settings, PowerSgdStrategy::kName, "PowerSGD (method powersgd)");
  declare_preset<PowerSgdSettings>(
      s, {{"default", {}}, {"paper", paper()}, {"torch-hook", torch_hook()}},
      "where the other powersgd settings start from: our own choice, the authors' experiments at rank 2, or the defaults "
      "of PyTorch's hook");
  declare_gradient_rank(s);
  s.number("min_rate", &PowerSgdSettings::min_rate, 0, 1e9,
           "gradients whose factors are not so many times smaller are exchanged in full");
  declare_dense_steps(s);
}

std::unique_ptr<SyncStrategy> average(const TrainConfig& config, Replica replica, Comm& world,
                                      const LrSchedule& schedule) {
  const auto& options = powersgd_settings(config);
  return std::make_unique<PowerSgdStrategy>(std::move(replica), world, options,
                                            compression_start(config, options.dense_steps, schedule));
}

}  // namespace

Method powersgd_method() { return {.name = PowerSgdStrategy::kName, .declare = declare, .average = average}; }

}  // namespace ab
