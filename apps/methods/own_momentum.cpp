// SPDX-License-Identifier: MIT
//
// Updates from momentum that no rank sends whole, compressed from the first step on: DeMo (arXiv 2411.19870;
// engine/sync/demo.h) and Dion (arXiv 2504.05295; engine/sync/dion.h).
#include "apps/methods/method.h"
#include "engine/sync/demo.h"
#include "engine/sync/dion.h"

namespace ab {
namespace {

/// `instead`: how else the method of that name can train.
void check_updates(const TrainConfig& config, const char* name, const char* instead) {
  AB_CHECK(config.optimizer == "sgd" && config.momentum == 0 && !config.nesterov,
           "{} has a momentum of its own and makes updates, not gradients: it needs --optimizer sgd --momentum 0 "
           "without --nesterov{}",
           name, instead);
  AB_CHECK(config.max_grad_norm == 0, "--max-grad-norm would scale the updates of {}, which have no norm of gradients",
           name);
}

void declare_demo(std::vector<Setting>& settings) {
  auto s = method_section<DemoOptions>(settings, DemoStrategy::kName, "DeMo (method demo)");
  s.number("topk", &DemoOptions::topk, 1, 4096,
           "k: cosine coefficients that a rank sends of every tile of 64×64 elements, and of 64 elements of a vector");
  s.number("decay", &DemoOptions::decay, 0, 1, "of the momentum that a rank keeps of its gradients");
  s.value(
      "sign", &DemoOptions::sign,
      "updates are the signs of what arrives; without, it is a gradient for the optimizer, which wants an --lr of its own: that of "
      "demo is for signs");
}

/// Every element of an update is as large as the rate.
void bring_defaults_of_demo(TrainConfig& config) { config.lr = 3e-3, config.momentum = 0, config.weight_decay = 0; }

void check_demo(const TrainConfig& config, Layer&, int) {
  if (config.of<DemoOptions>().sign) check_updates(config, "DeMo", ", or --demo.no-sign");
}

std::unique_ptr<SyncStrategy> make_demo(const TrainConfig& config, Layer& model, Comm& world,
                                        const LrSchedule& schedule) {
  return std::make_unique<DemoStrategy>(replica_of(model, config.sync_bn != SyncBn::off), world,
                                        config.of<DemoOptions>(), schedule,
                                        CompressionStart{.gradients = gradient_wire(config), .seed = config.seed});
}

void declare_dion(std::vector<Setting>& settings) {
  auto s = method_section<DionOptions>(settings, DionStrategy::kName, "Dion (method dion)");
  s.number("rank", &DionOptions::rank, 0, 1,
           "r: rows of both factors of an update, as a share of the smaller side of a weight")
      .above_low = true;
  s.number("momentum", &DionOptions::momentum, 0, 1, "of the momentum that a rank keeps of its gradients");
}

/// Rates of SGD do not carry over to orthonormal updates.
void bring_defaults_of_dion(TrainConfig& config) { config.lr = 0.02, config.momentum = 0, config.weight_decay = 0.01; }

void check_dion(const TrainConfig& config, Layer&, int) { check_updates(config, "Dion", ""); }

std::unique_ptr<SyncStrategy> make_dion(const TrainConfig& config, Layer& model, Comm& world, const LrSchedule&) {
  return std::make_unique<DionStrategy>(replica_of(model, config.sync_bn != SyncBn::off), world,
                                        config.of<DionOptions>(),
                                        CompressionStart{.gradients = gradient_wire(config), .seed = config.seed});
}

}  // namespace

Method demo_method() {
  return {.name = DemoStrategy::kName,
          .declare = declare_demo,
          .bring_defaults = bring_defaults_of_demo,
          .check = check_demo,
          .make = make_demo};
}

Method dion_method() {
  return {.name = DionStrategy::kName,
          .declare = declare_dion,
          .bring_defaults = bring_defaults_of_dion,
          .check = check_dion,
          .make = make_dion};
}

}  // namespace ab
