// SPDX-License-Identifier: MIT
#include "apps/train/train_step.h"

#include "engine/kernels/elementwise.h"
#include "engine/ops/loss.h"

namespace ab {

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

Tensor TrainStep::forward_backward(const Batch& batch) const {
  const Tf32Scope tf32(precision_);
  const Var images(cast(batch.images, activation_type(precision_)));
  const Var loss = softmax_cross_entropy(model_.forward(images), batch.labels, label_smoothing_,
                                         {batch.mixed_labels, scalars_.mix_share()});
  backward(loss, scalars_.dloss(), precision_ == Precision::fp16 ? scalars_.unscale() : Tensor());
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
