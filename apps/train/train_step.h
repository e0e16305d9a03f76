#pragma once
// SPDX-License-Identifier: MIT
//
// Forward and backward of one micro-batch: from images to a loss and the gradients of the parameters. On a GPU they are
// captured in a graph, with the same results to the last bit:
//   the first time a step is met   it runs as it is: plans are made, and the pool gets the memory it needs
//   the second time                it is captured, and the graph is launched
//   from then on                   the graph is launched
// A step counts as new when anything that its work refers to has been replaced: AB-training splits and
// rejoins weights, which changes tensors, shapes and what trains.
// A graph keeps the memory of its step between steps too. So it is dropped before anything else needs a lot of it, and
// where memory is too short for the step's pool but not for the step, steps run as they are.
// The optimizer and the collectives follow the graph and are not part of it. The optimizer is one launch for all
// parameters, whose learning rate is an argument; in a graph it would have to be copied to the device. Collectives
// between threads wait for each other on the host, which a graph cannot.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "data/loader.h"
#include "engine/core/graph_pool.h"
#include "engine/core/precision.h"
#include "engine/device/graph.h"
#include "engine/kernels/step_scalars.h"
#include "layers/layer.h"

namespace ab {

/// All that forward and backward refer to. It holds on to these tensors, so that no other can lie at their addresses.
class StepKey {
 public:
  /// `inputs`: what else the step reads; undefined ones count too.
  StepKey(Layer& model, std::vector<Tensor> inputs);
  bool operator==(const StepKey& other) const;

  struct Leaf {
    Var var;
    Tensor value;
    bool trainable;
  };
  const std::vector<Leaf>& leaves() const { return leaves_; }
  /// Tensors that a forward pass changes in the model, and forward and backward in its observers.
  const std::vector<Tensor>& buffers() const { return buffers_; }

 private:
  std::vector<Leaf> leaves_;
  std::vector<Tensor> buffers_;
  std::vector<Tensor> read_;  // inputs and what splits left over
};

/// if_possible: a step that turns out not to be capturable, or has no memory for it, is run without a graph, with a
/// warning.
enum class GraphUse { off, if_possible, required };

class StepGraph {
 public:
  /// `use` is not off.
  StepGraph(Device device, GraphUse use) : device_(device), use_(use) {}

  /// Runs `forward_backward`, which returns the loss: gradients are added to those of the model's parameters, and
  /// hooks are called as backward() would, but after it. `again`: another step adds to these gradients before they
  /// are read, so they must outlast its launch. The result is a copy of the loss.
  Tensor run(StepKey key, const std::function<Tensor()>& forward_backward, bool again);

  /// Gives back what the graph keeps: the next step is met for the first time. Gradients that a step has delivered
  /// may still lie in its pool, which goes when they have gone.
  void drop();
  /// Whether memory is kept for a graph.
  bool has_pool() const { return pool_ != nullptr; }

  /// How many graphs there have been.
  std::int64_t captures() const { return captures_; }

 private:
  struct Result {
    Tensor loss{};
    std::vector<Var> leaves{};  // in the order in which backward() completed them
    std::vector<Tensor> gradients{};
  };
  bool try_first(const std::function<Tensor()>& forward_backward, Result& result);
  void capture(const std::function<Tensor()>& forward_backward);
  Result run_once(const std::function<Tensor()>& forward_backward) const;
  void give_up(const std::string& reason);
  static Tensor deliver(const Result& result, bool again);

  Device device_;
  GraphUse use_;
  bool given_up_ = false;
  std::optional<StepKey> key_;
  std::shared_ptr<GraphPool> pool_;
  std::unique_ptr<Graph> graph_;
  Result captured_;
  std::int64_t captures_ = 0;
};

class TrainStep {
 public:
  /// `model`, on `device`, must outlive this; its noise comes from here.
  TrainStep(Layer& model, Device device, Precision precision, double label_smoothing, GraphUse graph_use);

  /// Values that differ from micro-batch to micro-batch.
  struct MicroBatch {
    std::uint64_t noise_seed = 0;
    double share = 1;  ///< of the micro-batch in the update
    double loss_scale = 1;
    bool last = true;         ///< of the update: no other adds to its gradients
    bool overlapped = false;  ///< hooks are to be called while backward computes, which a graph cannot
  };
  /// Adds to the gradients and calls the hooks of the parameters. `batch` is on the device. Returns the loss, [1].
  Tensor run(const Batch& batch, const MicroBatch& micro_batch);

  /// Operations of a micro-batch as it was last run (engine/ops/flops.h); graphs repeat it.
  std::int64_t flops() const { return flops_; }

  /// Gives back what a graph keeps; the next step is captured again.
  void drop_graph();
  /// Whether memory is kept for a graph.
  bool has_graph_pool() const { return graph_ && graph_->has_pool(); }
  /// How many graphs there have been.
  std::int64_t captures() const { return graph_ ? graph_->captures() : 0; }

 private:
  Tensor forward_backward(const Batch& batch);
  void copy_to_inputs(const Batch& batch);

  Layer& model_;
  Precision precision_;
  float label_smoothing_;
  StepScalars scalars_;
  std::optional<StepGraph> graph_;
  std::int64_t flops_ = 0;
  Batch inputs_;  // where the graph reads its batch
};

}  // namespace ab
