#pragma once
// SPDX-License-Identifier: MIT
//
// Ordinary data-parallel training: in every step the gradients are averaged over all ranks, so all ranks hold
// one and the same full-rank model throughout. Only the model's buffers (running statistics) drift apart, as
// each rank sees other samples, unless batch norms are synchronised; they are averaged when a common model is
// asked for.

#include <string>
#include <vector>

#include "engine/sync/batch_norm_sync.h"
#include "engine/sync/gradient_buckets.h"
#include "engine/sync/sync_strategy.h"

namespace ab {

class DenseStrategy final : public SyncStrategy {
 public:
  /// Gives all ranks the parameters and buffers of rank 0. `buffers` share storage with the model's own.
  /// `batch_norms`: those that are synchronised. `world`, the parameters and the batch norms must outlive this.
  DenseStrategy(const std::vector<Param*>& params, std::vector<Tensor> buffers, Comm& world,
                std::int64_t bucket_bytes = GradientBuckets::kDefaultBucketBytes,
                std::vector<BatchNormStats*> batch_norms = {});

  std::string phase() const override { return "full"; }
  void set_gradient_exchange(bool on) override { gradients_.set_exchange(on); }
  void finish_grads(TrainState& /*state*/) override { gradients_.finish(); }
  void begin_evaluation(TrainState& /*state*/) override { average_buffers(); }
  void finish(TrainState& /*state*/) override { average_buffers(); }

 private:
  void average_buffers();

  Comm& world_;
  std::vector<Tensor> buffers_;
  GradientBuckets gradients_;
  BatchNormSync batch_norms_;
};

}  // namespace ab
