// SPDX-License-Identifier: MIT
//
// Dion (arXiv 2504.05295; engine/sync/dion.h).
#include "engine/sync/dion.h"

#include "apps/methods/compressed.h"

namespace ab {
namespace {

/// Rates of SGD do not carry over to orthonormal updates.
void bring_defaults(TrainConfig& config) {
  config.lr = 0.02;
  config.momentum = 0;
  config.weight_decay = 0.01;
}

void declare(std::vector<Setting>& settings) {
  auto s = method_section<DionOptions>(settings, DionStrategy::kName, "Dion (method dion)");
  s.number("rank", &DionOptions::rank, 0, 1,
           "r: rows of both factors of an update, as a share of the smaller side of a weight")
      .above_low = true;
  s.number("momentum", &DionOptions::momentum, 0, 1, "of the momentum that a rank keeps of its gradients");
}

void check(const TrainConfig& config, Layer&, int) {
  AB_CHECK(
      config.optimizer == "sgd" && config.momentum == 0 && !config.nesterov,
      "Dion has a momentum of its own and makes updates, not gradients: it needs --optimizer sgd --momentum 0 without "
      "--nesterov");
  AB_CHECK(config.max_grad_norm == 0, "--max-grad-norm would scale Dion's updates, which have no norm of gradients");
}

std::unique_ptr<SyncStrategy> make(const TrainConfig& config, Layer& model, Comm& world, const LrSchedule& schedule) {
  CompressionStart start = compression_start(config, schedule);
  start.dense_steps = 0;
  return std::make_unique<DionStrategy>(replica_of(model, config.sync_bn != SyncBn::off), world,
                                        config.of<DionOptions>(), start);
}

}  // namespace

Method dion_method() {
  return {
      .name = DionStrategy::kName, .declare = declare, .bring_defaults = bring_defaults, .check = check, .make = make};
}

}  // namespace ab
