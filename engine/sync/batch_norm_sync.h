#pragma once
// SPDX-License-Identifier: MIT
//
// Synchronised batch norm: which ranks take the statistics of a training step over their batches together
// (engine/kernels/batch_norm.h says what they exchange). The exchange lies inside forward and backward, between
// gradient buckets in flight, so it has communicators of its own.

#include <memory>
#include <vector>

#include "engine/comm/comm.h"
#include "engine/ops/norm.h"

namespace ab {

enum class SyncBn {
  off,
  group,  ///< the ranks that share gradients: a group while it trains by itself, else the world
  world,  ///< all ranks at all times, which couples groups that train by themselves (the authors' release)
};

/// Adds up over `ranks`, which must outlive it; empty for null and for a rank alone.
inline SumOverRanks sum_over(Comm* ranks) {
  if (!ranks || ranks->size() == 1) return {};
  return [ranks](const Tensor& t) { ranks->all_reduce(t, ReduceOp::sum); };
}

class BatchNormSync {
 public:
  static constexpr const char* kLabel = "batch-norm";  ///< of the communicators in the ledger

  /// Collective over `world`; SyncBn::group needs `group_of`. Starts over the world.
  /// The batch norms must outlive this; each is back at its own rank's statistics afterwards.
  BatchNormSync(SyncBn scope, std::vector<BatchNormStats*> batch_norms, Comm& world, const ColourOf& group_of = {})
      : batch_norms_(std::move(batch_norms)) {
    if (scope == SyncBn::off) batch_norms_.clear();
    if (batch_norms_.empty()) return;
    world_ = world.duplicate(kLabel);
    if (scope == SyncBn::group) group_ = world.split(group_of, kLabel);
    enter(false);
  }
  ~BatchNormSync() {
    for (BatchNormStats* stats : batch_norms_) stats->sum_over_ranks = {};
  }
  BatchNormSync(const BatchNormSync&) = delete;
  BatchNormSync& operator=(const BatchNormSync&) = delete;

  /// From here on groups train by themselves, or do not.
  void enter(bool in_groups) {
    Comm* const ranks = in_groups && group_ ? group_.get() : world_.get();
    for (BatchNormStats* stats : batch_norms_) stats->sum_over_ranks = sum_over(ranks);
  }

 private:
  std::vector<BatchNormStats*> batch_norms_;
  std::unique_ptr<Comm> world_, group_;
};

}  // namespace ab
