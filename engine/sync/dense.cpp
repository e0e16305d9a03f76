// SPDX-License-Identifier: MIT
#include "engine/sync/dense.h"

namespace ab {

DenseStrategy::DenseStrategy(Replica model, Comm& comm, const GradientWire& wire)
    : ReplicaStrategy(std::move(model), comm), gradients_(replica().params, world(), ReduceOp::mean, wire) {}

}  // namespace ab
