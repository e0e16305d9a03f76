// SPDX-License-Identifier: MIT
#include "engine/sync/dense.h"

namespace ab {

DenseStrategy::DenseStrategy(Replica model, Comm& comm, std::int64_t bucket_bytes)
    : ReplicaStrategy(std::move(model), comm),
      gradients_(replica().params, world(), ReduceOp::mean, bucket_bytes) {}

}  // namespace ab
