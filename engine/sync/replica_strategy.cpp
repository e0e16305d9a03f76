// SPDX-License-Identifier: MIT
#include "engine/sync/replica_strategy.h"

#include "engine/sync/flat.h"

namespace ab {

std::vector<Tensor> Replica::values() const {
  std::vector<Tensor> all;
  for (const Param* param : params) all.push_back(param->value.value());
  return all;
}

std::vector<Tensor> Replica::tensors() const {
  std::vector<Tensor> all = values();
  all.insert(all.end(), buffers.begin(), buffers.end());
  return all;
}

ReplicaStrategy::ReplicaStrategy(Replica replica, Comm& world, SyncBn scope, const ColourOf& group_of)
    : world_(world), replica_(std::move(replica)), batch_norms_(scope, replica_.batch_norms, world, group_of) {
  batch_norms_.enter(scope == SyncBn::group);
  if (!replica_.equal) broadcast_flat(world_, replica_.tensors(), 0);
}

void ReplicaStrategy::average_buffers() { all_reduce_flat(world_, replica_.buffers, ReduceOp::mean); }

}  // namespace ab
