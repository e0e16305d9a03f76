#pragma once
// SPDX-License-Identifier: MIT
//
// Softmax cross entropy by definition, in double: slow and obviously right, for tests.

#include <cmath>
#include <cstdint>
#include <vector>

namespace ab::reference {

using Values = std::vector<double>;

/// mean over rows of −Σ_c q_c log softmax(z)_c,
/// q = (1 − smoothing)·(share·onehot(label) + (1 − share)·onehot(mixed label)) + smoothing / C
inline double softmax_cross_entropy(const Values& logits, const std::vector<std::int64_t>& labels, double smoothing,
                                    const std::vector<std::int64_t>& mixed_labels, double share) {
  const std::size_t classes = logits.size() / labels.size();
  double loss = 0;
  for (std::size_t row = 0; row < labels.size(); ++row) {
    double total = 0;
    for (std::size_t c = 0; c < classes; ++c) total += std::exp(logits[row * classes + c]);
    for (std::size_t c = 0; c < classes; ++c) {
      const auto is = [&](std::int64_t label) { return static_cast<std::int64_t>(c) == label ? 1.0 : 0.0; };
      const double hit = share * is(labels[row]) + (1 - share) * is(mixed_labels[row]);
      const double target = (1 - smoothing) * hit + smoothing / static_cast<double>(classes);
      loss -= target * std::log(std::exp(logits[row * classes + c]) / total);
    }
  }
  return loss / static_cast<double>(labels.size());
}

}  // namespace ab::reference
