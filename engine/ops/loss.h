#pragma once
// SPDX-License-Identifier: MIT
//
// Classification loss and accuracy.

#include "engine/autograd/var.h"

namespace ab {

/// loss = mean over rows of −Σ_c q_c log softmax(logits)_c,  q = (1 − s)·onehot(label) + s / C  (s = smoothing)
/// logits: [N, C], labels: [N] int64 in [0, C); result: [1]. The gradient is (softmax − q) / N.
Var softmax_cross_entropy(const Var& logits, const Tensor& labels, float smoothing = 0.0f);

/// Per row: how many logits are larger than that of the label (ties count when they stand before it), so
/// that the row is a top-k hit when the number is below k.   logits: [N, C], labels: [N] int64 -> [N] int64
Tensor label_positions(const Tensor& logits, const Tensor& labels);

}  // namespace ab
