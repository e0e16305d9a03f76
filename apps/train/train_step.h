#pragma once
// SPDX-License-Identifier: MIT
//
// Forward and backward of one micro-batch: from images to a loss and the gradients of the parameters. On a GPU it can
// be captured in a graph (step_graph.h), with the same results to the last bit.

#include <optional>

#include "apps/train/step_graph.h"
#include "data/loader.h"
#include "engine/core/precision.h"
#include "engine/kernels/step_scalars.h"

namespace ab {

class TrainStep {
 public:
  /// `model`, on `device`, must outlive this; its noise comes from here.
  TrainStep(Layer& model, Device device, Precision precision, double label_smoothing, GraphUse graph_use);

  /// What differs from micro-batch to micro-batch.
  struct MicroBatch {
    std::uint64_t noise_seed = 0;
    double share = 1;  ///< of the micro-batch in the update
    double loss_scale = 1;
    bool last = true;         ///< of the update: no other adds to its gradients
    bool overlapped = false;  ///< hooks are to be called while backward computes, which a graph cannot
  };
  /// Adds to the gradients and calls the hooks of the parameters. `batch` is on the device. Returns the loss, [1].
  Tensor run(const Batch& batch, const MicroBatch& micro_batch);

  /// Gives back what a graph keeps; the next step is captured again.
  void drop_graph();
  /// Whether memory is kept for a graph.
  bool has_graph_pool() const { return graph_ && graph_->has_pool(); }
  /// How many graphs there have been.
  std::int64_t captures() const { return graph_ ? graph_->captures() : 0; }

 private:
  Tensor forward_backward(const Batch& batch) const;
  void copy_to_inputs(const Batch& batch);

  Layer& model_;
  Precision precision_;
  float label_smoothing_;
  StepScalars scalars_;
  std::optional<StepGraph> graph_;
  Batch inputs_;  // where the graph reads its batch
};

}  // namespace ab
