// SPDX-License-Identifier: MIT
#include "apps/train/train_step.h"

#include <algorithm>
#include <cstdio>

#include "engine/core/memory.h"
#include "engine/core/say.h"
#include "engine/kernels/elementwise.h"
#include "engine/ops/flops.h"
#include "engine/ops/loss.h"
#include "layers/output_moments.h"
#include "layers/weight.h"

namespace ab {

namespace {

/// The same elements in the same place, or both undefined.
bool same_place(const Tensor& a, const Tensor& b) {
  return a.raw() == b.raw() && a.shape() == b.shape() && a.dtype() == b.dtype();
}

/// Leaves have no gradient while it lives, and the one they had afterwards.
class WithoutGradients {
 public:
  explicit WithoutGradients(const std::vector<StepKey::Leaf>& leaves) {
    for (const StepKey::Leaf& leaf : leaves) {
      before_.emplace_back(leaf.var, leaf.var.grad());
      before_.back().first.clear_grad();
    }
  }
  ~WithoutGradients() {
    for (auto& [var, grad] : before_) var.set_grad(std::move(grad));
  }
  WithoutGradients(const WithoutGradients&) = delete;
  WithoutGradients& operator=(const WithoutGradients&) = delete;

 private:
  std::vector<std::pair<Var, Tensor>> before_;
};

}  // namespace

StepKey::StepKey(Layer& model, std::vector<Tensor> inputs) : read_(std::move(inputs)) {
  const Inventory inventory = inventory_of(model);
  for (const Param* p : inventory.params) leaves_.push_back({p->value, p->value.value(), p->trainable()});
  for (const Buffer& buffer : inventory.buffers) buffers_.push_back(buffer.value);
  for (const Weight* weight : inventory.weights) {
    read_.push_back(weight->rest());
    if (weight->observer()) buffers_.push_back(weight->observer()->sums());
  }
}

bool StepKey::operator==(const StepKey& other) const {
  const auto same_leaf = [](const Leaf& a, const Leaf& b) {
    return a.var.same_as(b.var) && same_place(a.value, b.value) && a.trainable == b.trainable;
  };
  return std::ranges::equal(leaves_, other.leaves_, same_leaf) &&
         std::ranges::equal(buffers_, other.buffers_, same_place) && std::ranges::equal(read_, other.read_, same_place);
}

Tensor StepGraph::run(StepKey key, const std::function<Tensor()>& forward_backward, bool again) {
  if (!given_up_ && key_ != key) {
    drop();
    key_ = std::move(key);
    pool_ = GraphPool::create(device_);
    if (Result first; try_first(forward_backward, first)) return deliver(first, again);
  }
  if (!given_up_ && !graph_) capture(forward_backward);
  if (given_up_) return forward_backward();
  graph_->launch();
  return deliver(captured_, again);
}

/// False when the pool does not get the memory it needs: then it is as if the step had not been run.
bool StepGraph::try_first(const std::function<Tensor()>& forward_backward, Result& result) {
  std::vector<Tensor> before;
  try {
    for (const Tensor& buffer : key_->buffers()) before.push_back(buffer.clone());
    result = run_once(forward_backward);
    return true;
  } catch (const OutOfMemory& error) {
    if (use_ == GraphUse::required) throw;
    for (std::size_t i = 0; i < before.size(); ++i) key_->buffers()[i].copy_from(before[i]);
    give_up(fmt::format("one would need more memory: {}", error.what()));
    return false;
  }
}

void StepGraph::capture(const std::function<Tensor()>& forward_backward) {
  try {
    graph_ = capture_graph(*pool_, [&] { captured_ = run_once(forward_backward); });
    ++captures_;
  } catch (const std::exception& error) {
    if (use_ == GraphUse::required) throw;
    give_up(fmt::format("capturing one failed: {}", error.what()));
  }
}

void StepGraph::give_up(const std::string& reason) {
  say(stderr, "warning: steps run without a CUDA graph, since {}\n", reason);
  drop();
  given_up_ = true;
}

StepGraph::Result StepGraph::run_once(const std::function<Tensor()>& forward_backward) const {
  const GraphPool::Scope scope(*pool_);
  const WithoutGradients without_gradients(key_->leaves());
  const PostponedHooks hooks;
  Result result{forward_backward(), hooks.ready_leaves()};
  for (const Var& leaf : result.leaves) result.gradients.push_back(leaf.grad());
  return result;
}

/// Gives the gradients to the leaves.
Tensor StepGraph::deliver(const Result& result, bool again) {
  for (std::size_t i = 0; i < result.leaves.size(); ++i) {
    Var leaf = result.leaves[i];
    const Tensor& grad = result.gradients[i];
    if (grad.defined() && leaf.grad().defined()) leaf.set_grad(add(leaf.grad(), grad));
    else if (grad.defined()) leaf.set_grad(again ? grad.clone() : grad);
    leaf.call_grad_ready_hook();
  }
  return result.loss.clone();
}

void StepGraph::drop() {
  graph_.reset();
  captured_ = {};
  pool_.reset();
  key_.reset();
}

TrainStep::TrainStep(Layer& model, Device device, Precision precision, double label_smoothing, GraphUse graph_use)
    : model_(model), precision_(precision), label_smoothing_(static_cast<float>(label_smoothing)), scalars_(device) {
  model_.set_noise(scalars_.noise_seed());
  if (graph_use != GraphUse::off) graph_.emplace(device, graph_use);
}

Tensor TrainStep::run(const Batch& batch, const MicroBatch& micro_batch) {
  scalars_.set({.noise_seed = micro_batch.noise_seed,
                .mix_share = static_cast<float>(batch.mix),
                .dloss = static_cast<float>(micro_batch.share * micro_batch.loss_scale),
                .unscale = static_cast<float>(1 / micro_batch.loss_scale)});
  if (!graph_ || micro_batch.overlapped) return forward_backward(batch);
  copy_to_inputs(batch);
  return graph_->run(
      StepKey(model_, {inputs_.images, inputs_.labels, inputs_.mixed_labels}),
      [this] { return forward_backward(inputs_); }, !micro_batch.last);
}

void TrainStep::drop_graph() {
  if (!graph_) return;
  graph_->drop();
  inputs_ = {};
}

Tensor TrainStep::forward_backward(const Batch& batch) {
  const std::int64_t flops_before = flops_so_far();
  const Tf32Scope tf32(precision_);
  const Var images(cast(batch.images, activation_type(precision_)));
  const Var loss = softmax_cross_entropy(model_.forward(images), batch.labels, label_smoothing_,
                                         {batch.mixed_labels, scalars_.mix_share()});
  backward(loss, scalars_.dloss(), precision_ == Precision::fp16 ? scalars_.unscale() : Tensor());
  flops_ = flops_so_far() - flops_before;
  return loss.value();
}

void TrainStep::copy_to_inputs(const Batch& batch) {
  const auto copy = [](Tensor& to, const Tensor& from) {
    if (!from.defined()) to = {};
    else if (to.defined() && to.shape() == from.shape() && to.dtype() == from.dtype()) to.copy_from(from);
    else to = from.clone();
  };
  copy(inputs_.images, batch.images);
  copy(inputs_.labels, batch.labels);
  copy(inputs_.mixed_labels, batch.mixed_labels);
}

}  // namespace ab
