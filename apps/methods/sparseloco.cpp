// SPDX-License-Identifier: MIT
//
// SparseLoCo (arXiv 2508.15706; engine/sync/sparseloco.h).
#include "engine/sync/sparseloco.h"

#include "apps/methods/method.h"

namespace ab {
namespace {

void declare(std::vector<Setting>& settings) {
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

void check(const TrainConfig& config, Layer&, int) {
  const int bits = config.of<SparseLocoOptions>().bits;
  AB_CHECK(bits == 2 || bits == 32, "--sparseloco.bits is 2 or 32, got {}", bits);
}

std::unique_ptr<SyncStrategy> make(const TrainConfig& config, Layer& model, Comm& world, const LrSchedule&) {
  // No two ranks share gradients, so batch norms are shared by all ranks or by none.
  return std::make_unique<SparseLocoStrategy>(replica_of(model, config.sync_bn == SyncBn::world), world,
                                              config.of<SparseLocoOptions>());
}

}  // namespace

Method sparseloco_method() {
  return {.name = SparseLocoStrategy::kName, .declare = declare, .check = check, .make = make};
}

}  // namespace ab
