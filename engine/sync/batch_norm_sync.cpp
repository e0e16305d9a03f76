// SPDX-License-Identifier: MIT
#include "engine/sync/batch_norm_sync.h"

namespace ab {

SumOverRanks sum_over(Comm* ranks) {
  if (!ranks || ranks->size() == 1) return {};
  return [ranks](const Tensor& t) { ranks->all_reduce(t, ReduceOp::sum); };
}

BatchNormSync::BatchNormSync(SyncBn scope, std::vector<BatchNormStats*> batch_norms, Comm& world,
                             const ColourOf& group_of)
    : batch_norms_(std::move(batch_norms)) {
  if (scope == SyncBn::off) batch_norms_.clear();
  if (batch_norms_.empty()) return;
  world_ = world.duplicate(kLabel);
  if (scope == SyncBn::group) group_ = world.split(group_of, kLabel);
  enter(false);
}

BatchNormSync::~BatchNormSync() {
  for (BatchNormStats* stats : batch_norms_) stats->sum_over_ranks = {};
}

void BatchNormSync::enter(bool in_groups) {
  Comm* const ranks = in_groups && group_ ? group_.get() : world_.get();
  for (BatchNormStats* stats : batch_norms_) stats->sum_over_ranks = sum_over(ranks);
}

}  // namespace ab
