// SPDX-License-Identifier: MIT
//
// Replicas that train alone and meet in outer steps: DiLoCo, plain and streaming (engine/sync/diloco.h), and SparseLoCo (arXiv
// 2508.15706; engine/sync/sparseloco.h). No two ranks share gradients, so batch norms are shared by all ranks or by none.
#include <algorithm>

#include "apps/methods/method.h"
#include "engine/sync/diloco.h"
#include "engine/sync/sparseloco.h"

namespace ab {
namespace {

constexpr const char* kDiloco = "diloco";

void declare_diloco(std::vector<Setting>& settings) {
  auto s = method_section<DilocoOptions>(settings, kDiloco, "DiLoCo (method diloco)");
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

void paper(TrainConfig& config) {
  config.of<DilocoOptions>() = {.inner_steps = 500, .outer_lr = 0.7, .outer_momentum = 0.9};
}

void check_diloco(const TrainConfig& config, Layer& model, int) {
  const DilocoOptions& options = config.of<DilocoOptions>();
  const std::vector<Param*> params = inventory_of(model).params;
  options.validate(static_cast<std::size_t>(std::ranges::count_if(params, &Param::trainable)));
  AB_CHECK(config.ema_decay == 0 || (options.fragments == 1 && options.overlap_steps == 0 && options.mixing == 0),
           "--ema-decay averages models that all ranks hold, and while Streaming DiLoCo trains they never hold one");
}

std::unique_ptr<SyncStrategy> make_diloco(const TrainConfig& config, Layer& model, Comm& world, const LrSchedule&) {
  return std::make_unique<DilocoStrategy>(replica_of(model, config.sync_bn == SyncBn::world), world,
                                          config.of<DilocoOptions>(), config.comm_dtype);
}

void declare_sparseloco(std::vector<Setting>& settings) {
  auto s = method_section<SparseLocoOptions>(settings, SparseLocoStrategy::kName, "SparseLoCo (method sparseloco)");
  s.number("inner_steps", &SparseLocoOptions::inner_steps, 1, 1e9,
           "H: steps that every rank trains its own replica before it sends what it has learned");
  s.number(
      "topk", &SparseLocoOptions::topk, 1, kTileSide * kTileSide,
      "elements that a rank sends of every tile of 64×64 elements, and of 64 elements of a vector, or all that it has");
  s.number("bits", &SparseLocoOptions::bits, 2, 32,
           "bits of a value that is sent: 2, by a codebook for each tensor, or 32");
  s.number("beta", &SparseLocoOptions::beta, 0, 1, "share of what was not sent that is added in the next round");
  s.number("outer_lr", &SparseLocoOptions::outer_lr, 0, 100, "learning rate of the outer steps").above_low = true;
}

void check_sparseloco(const TrainConfig& config, Layer&, int) {
  const int bits = config.of<SparseLocoOptions>().bits;
  AB_CHECK(bits == 2 || bits == 32, "--sparseloco.bits is 2 or 32, got {}", bits);
}

std::unique_ptr<SyncStrategy> make_sparseloco(const TrainConfig& config, Layer& model, Comm& world, const LrSchedule&) {
  return std::make_unique<SparseLocoStrategy>(replica_of(model, config.sync_bn == SyncBn::world), world,
                                              config.of<SparseLocoOptions>());
}

}  // namespace

Method diloco_method() {
  return {.name = kDiloco,
          .declare = declare_diloco,
          .presets = {{"paper", "the paper's for language models", paper}},
          .check = check_diloco,
          .make = make_diloco};
}

Method sparseloco_method() {
  return {.name = SparseLocoStrategy::kName,
          .declare = declare_sparseloco,
          .check = check_sparseloco,
          .make = make_sparseloco,
          .wire = "as many bits as --sparseloco.bits says"};
}

}  // namespace ab
