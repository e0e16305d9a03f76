// SPDX-License-Identifier: MIT
//
// DiLoCo, plain and streaming (engine/sync/diloco.h).
#include "engine/sync/diloco.h"

#include <algorithm>

#include "apps/methods/method.h"

namespace ab {
namespace {

constexpr const char* kName = "diloco";

const DilocoOptions& settings_of(const TrainConfig& config) { return config.of<DilocoOptions>(); }

void paper(TrainConfig& config) {
  config.of<DilocoOptions>() = {.inner_steps = 500, .outer_lr = 0.7, .outer_momentum = 0.9};
}

void declare(std::vector<Setting>& settings) {
  auto s = method_section<DilocoOptions>(settings, kName, "DiLoCo (method diloco)");
  s.number("inner_steps", &DilocoOptions::inner_steps, 1, 1e9,
           "H: steps that every rank trains its own replica before it takes part in an outer step");
  s.number("outer_lr", &DilocoOptions::outer_lr, 0, 100, "learning rate of the outer steps").above_low = true;
  s.number("outer_momentum", &DilocoOptions::outer_momentum, 0, 1, "their Nesterov momentum");
  s.number("fragments", &DilocoOptions::fragments, 1, 65536,
           "F: streaming: parts of the model that take turns in outer steps, one every H/F steps");
  s.number("overlap_steps", &DilocoOptions::overlap_steps, 0, 1e9,
           "streaming: steps that are computed while a fragment travels, less than H/F");
  s.number("mixing", &DilocoOptions::mixing, 0, 1,
           "streaming: share of the rank's own parameters that stays when a fragment arrives");
}

void check(const TrainConfig& config, Layer& model, int) {
  const DilocoOptions& options = settings_of(config);
  std::size_t trained = 0;
  for (const Param* p : inventory_of(model).params) trained += p->trainable();
  options.validate(trained);
  AB_CHECK(config.ema_decay == 0 || (options.fragments == 1 && options.overlap_steps == 0 && options.mixing == 0),
           "--ema-decay averages models that all ranks hold, and while Streaming DiLoCo trains they never hold one");
}

std::unique_ptr<SyncStrategy> make(const TrainConfig& config, Layer& model, Comm& world, const LrSchedule&) {
  // No two ranks share gradients, so batch norms are shared by all ranks or by none.
  return std::make_unique<DilocoStrategy>(replica_of(model, config.sync_bn == SyncBn::world), world,
                                          settings_of(config), config.comm_dtype);
}

}  // namespace

Method diloco_method() {
  return {.name = kName,
          .declare = declare,
          .presets = {{"paper", "the paper's for language models", paper}},
          .check = check,
          .make = make};
}

}  // namespace ab
