// SPDX-License-Identifier: MIT
//
// Data-parallel training (engine/sync/dense.h). It has no settings of its own.
#include "engine/sync/dense.h"

#include "apps/methods/method.h"

namespace ab {
namespace {

std::unique_ptr<SyncStrategy> average(const TrainConfig& config, Replica replica, Comm& world, const LrSchedule&) {
  return std::make_unique<DenseStrategy>(std::move(replica), world, gradient_wire(config));
}

}  // namespace

Method dense_method() { return {.name = kBaseline, .average = average}; }

}  // namespace ab
