// SPDX-License-Identifier: MIT
//
// DeMo (arXiv 2411.19870; engine/sync/demo.h).
#include "engine/sync/demo.h"

#include "apps/methods/compressed.h"

namespace ab {
namespace {

/// Every element of an update is as large as the rate.
void bring_defaults(TrainConfig& config) {
  config.lr = 3e-3;
  config.momentum = 0;
  config.weight_decay = 0;
}

void declare(std::vector<Setting>& settings) {
  auto s = method_section<DemoOptions>(settings, DemoStrategy::kName, "DeMo (method demo)");
  s.number("topk", &DemoOptions::topk, 1, 4096,
           "k: cosine coefficients that a rank sends of every tile of 64×64 elements, and of 64 elements of a vector");
  s.number("decay", &DemoOptions::decay, 0, 1, "of the momentum that a rank keeps of its gradients");
  s.value("sign", &DemoOptions::sign,
          "updates are the signs of what arrives; without, it is a gradient for the optimizer");
}

void check(const TrainConfig& config, Layer&, int) {
  if (!config.of<DemoOptions>().sign) return;
  AB_CHECK(config.optimizer == "sgd" && config.momentum == 0 && !config.nesterov,
           "DeMo has a momentum of its own and makes updates, not gradients: it needs --optimizer sgd --momentum 0 "
           "without --nesterov, or --demo.no-sign");
  AB_CHECK(config.max_grad_norm == 0, "--max-grad-norm would scale DeMo's signs, which have no norm of gradients");
}

std::unique_ptr<SyncStrategy> make(const TrainConfig& config, Layer& model, Comm& world, const LrSchedule& schedule) {
  CompressionStart start = compression_start(config, schedule);
  start.dense_steps = 0;
  return std::make_unique<DemoStrategy>(replica_of(model, config.sync_bn != SyncBn::off), world,
                                        config.of<DemoOptions>(), schedule, start);
}

}  // namespace

Method demo_method() {
  return {
      .name = DemoStrategy::kName, .declare = declare, .bring_defaults = bring_defaults, .check = check, .make = make};
}

}  // namespace ab
