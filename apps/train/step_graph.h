#pragma once
// SPDX-License-Identifier: MIT
//
// When forward and backward of a training step are captured in a graph, and when the graph is launched instead:
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

#include "engine/core/graph_pool.h"
#include "engine/device/graph.h"
#include "layers/layer.h"

namespace ab {

/// What forward and backward refer to. It holds on to these tensors, so that no other can lie at their addresses.
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
  /// What a forward pass changes in the model, and forward and backward in who observes it.
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

  /// What `forward_backward` does, which returns the loss: gradients are added to those of the model's parameters, and
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

}  // namespace ab
