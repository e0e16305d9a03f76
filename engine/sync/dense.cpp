// SPDX-License-Identifier: MIT
#include "engine/sync/dense.h"

#include "engine/sync/flat.h"

namespace ab {

DenseStrategy::DenseStrategy(const std::vector<Param*>& params, std::vector<Tensor> buffers, Comm& world,
                             std::int64_t bucket_bytes, std::vector<BatchNormStats*> batch_norms)
    : world_(world),
      buffers_(std::move(buffers)),
      gradients_(params, world, ReduceOp::mean, bucket_bytes),
      batch_norms_(SyncBn::world, std::move(batch_norms), world) {
  std::vector<Tensor> model = buffers_;
  for (const Param* param : params) model.push_back(param->value.value());
  broadcast_flat(world_, model, 0);
}

void DenseStrategy::average_buffers() { all_reduce_flat(world_, buffers_, ReduceOp::mean); }

}  // namespace ab
