// SPDX-License-Identifier: MIT
#include "engine/ops/loss.h"

#include <algorithm>

#include "engine/kernels/loss.h"

namespace ab {
namespace {

void check_labels(std::string_view operation, const Tensor& logits, const Tensor& labels) {
  AB_CHECK(logits.rank() == 2 && logits.numel() > 0, "{}: expected logits [N, C], got {}", operation,
           logits.shape().str());
  AB_CHECK(labels.dtype() == DType::int64 && labels.numel() == logits.dim(0),
           "{}: expected {} int64 labels, one per row of logits {}, got {} {}", operation, logits.dim(0),
           logits.shape().str(), name_of(labels.dtype()), labels.shape().str());
  AB_CHECK(labels.device() == logits.device(), "{}: labels must be on the device of logits; move them with to()",
           operation);
}

/// Waits for the device.
void check_classes(std::string_view operation, const Tensor& logits, const Tensor& labels) {
  if (labels.device().kind == DeviceKind::shapes) return;
  const Tensor here = labels.to(Device{});
  const auto bad = std::ranges::count_if(here.span<std::int64_t>(),
                                         [&](std::int64_t label) { return label < 0 || label >= logits.dim(1); });
  AB_CHECK_KIND(data, bad == 0, "{}: {} labels are not in [0, {}); the data set has more classes than the model",
                operation, bad, logits.dim(1));
}

void check_mixed_labels(const Tensor& logits, const MixedLabels& mixed) {
  check_labels("softmax_cross_entropy", logits, mixed.labels);
  AB_CHECK(mixed.share.defined() && mixed.share.numel() == 1 && mixed.share.dtype() == DType::float32 &&
               mixed.share.device() == logits.device(),
           "softmax_cross_entropy: the share of the first labels must be one float32 on the device of logits");
}

}  // namespace

Var softmax_cross_entropy(const Var& logits, const Tensor& labels, float smoothing, const MixedLabels& mixed) {
  check_labels("softmax_cross_entropy", logits.value(), labels);
  if (mixed.labels.defined()) check_mixed_labels(logits.value(), mixed);
  for (const Tensor& list : {labels, mixed.labels})
    if (list.defined() && list.device().kind == DeviceKind::cpu)
      check_classes("softmax_cross_entropy", logits.value(), list);
  AB_CHECK(smoothing >= 0 && smoothing < 1, "softmax_cross_entropy: smoothing {} is not in [0, 1)", smoothing);
  const Tensor z = logits.value();
  const bool mixes = mixed.labels.defined();
  const ClassTargets targets{labels, mixes ? mixed.labels : labels, mixes ? mixed.share : Tensor(), smoothing};
  const SoftmaxCrossEntropyResult result = softmax_cross_entropy_forward(z, targets);
  return record("softmax_cross_entropy", result.loss, {logits}, [=, lse = result.lse](const Tensor& dloss) {
    return Gradients{softmax_cross_entropy_backward(dloss, z, targets, lse)};
  });
}

Tensor label_positions(const Tensor& logits, const Tensor& labels) {
  check_labels("label_positions", logits, labels);
  check_classes("label_positions", logits, labels);
  return count_logits_before_label(logits, labels);
}

}  // namespace ab
