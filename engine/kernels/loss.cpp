// SPDX-License-Identifier: MIT
#include "engine/kernels/loss.h"

namespace ab {
namespace {

const float* share_of(const ClassTargets& targets) {
  return targets.share.defined() ? targets.share.data<float>() : nullptr;
}

}  // namespace

SoftmaxCrossEntropyResult softmax_cross_entropy_forward(const Tensor& logits, const ClassTargets& targets) {
  const std::int64_t rows = logits.dim(0), classes = logits.dim(1);
  return dispatch_float(logits.dtype(), "softmax_cross_entropy", [&]<class T>() {
    using C = compute_t<T>;
    const Tensor row_loss(Shape{rows}, dtype_of<C>, logits.device());
    const SoftmaxCrossEntropyResult result{Tensor(Shape{1}, dtype_of<C>, logits.device()),
                                           Tensor(Shape{rows}, dtype_of<C>, logits.device())};
    for_each_row(logits.device(), rows, 8 * classes,
                 kernels::SoftmaxCrossEntropy<T>{logits.data<T>(), targets.labels.data<std::int64_t>(),
                                                 targets.mixed_labels.data<std::int64_t>(), row_loss.data<C>(),
                                                 result.lse.data<C>(), classes, share_of(targets),
                                                 static_cast<C>(targets.smoothing)});
    for_each_row(logits.device(), 1, rows, kernels::MeanLoss<C>{row_loss.data<C>(), result.loss.data<C>(), rows});
    return result;
  });
}

Tensor softmax_cross_entropy_backward(const Tensor& dloss, const Tensor& logits, const ClassTargets& targets,
                                      const Tensor& lse) {
  const std::int64_t rows = logits.dim(0), classes = logits.dim(1);
  const Tensor dlogits(logits.shape(), logits.dtype(), logits.device());
  dispatch_float(logits.dtype(), "softmax_cross_entropy", [&]<class T>() {
    using C = compute_t<T>;
    for_each_row(logits.device(), rows, 8 * classes,
                 kernels::SoftmaxCrossEntropyBackward<T>{
                     dloss.data<C>(), logits.data<T>(), targets.labels.data<std::int64_t>(),
                     targets.mixed_labels.data<std::int64_t>(), lse.data<C>(), dlogits.data<T>(), rows, classes,
                     share_of(targets), static_cast<C>(targets.smoothing)});
  });
  return dlogits;
}

Tensor count_logits_before_label(const Tensor& logits, const Tensor& labels) {
  const std::int64_t rows = logits.dim(0), classes = logits.dim(1);
  const Tensor positions(Shape{rows}, DType::int64, logits.device());
  dispatch_float(logits.dtype(), "label_positions", [&]<class T>() {
    for_each_row(logits.device(), rows, classes,
                 kernels::LabelPosition<T>{logits.data<T>(), labels.data<std::int64_t>(),
                                           positions.data<std::int64_t>(), classes});
  });
  return positions;
}

}  // namespace ab
