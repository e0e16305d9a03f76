#pragma once
// SPDX-License-Identifier: MIT
//
// Classification loss and accuracy.

#include "engine/autograd/var.h"

namespace ab {

/// Second labels of images that are blends of two (mixup, Zhang et al. 2018; CutMix, Yun et al. 2019).
struct MixedLabels {
  Tensor labels{};  ///< [N] int64; undefined: images are not mixed
  Tensor share{};   ///< of the first labels: [1] float32 in [0, 1] on their device, where it is read
};

/// loss = mean over rows of −Σ_c q_c log softmax(logits)_c,  q = (1 − s) p + s / C  (s = smoothing),
/// p = onehot(label), or share · onehot(label) + (1 − share) · onehot(mixed label)
/// logits: [N, C], labels: [N] int64 in [0, C); result: [1]. The gradient is (softmax − q) / N.
/// On a CPU a label out of range throws Error(data); on a GPU, where it would have to be waited for, the loss is NaN.
Var softmax_cross_entropy(const Var& logits, const Tensor& labels, float smoothing = 0.0f,
                          const MixedLabels& mixed = {});

/// Per row: how many logits are larger than that of the label (ties count when they stand before it), so
/// that the row is a top-k hit when the number is below k.
/// logits: [N, C], labels: [N] int64 -> [N] int64. Throws Error(data) for a label that is not in [0, C).
Tensor label_positions(const Tensor& logits, const Tensor& labels);

}  // namespace ab
