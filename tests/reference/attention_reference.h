#pragma once
// SPDX-License-Identifier: MIT
//
// Attention and token operations by definition, in double: slow and obviously right, for tests.

#include <algorithm>
#include <cmath>
#include <vector>

namespace ab::reference {

using Values = std::vector<double>;

/// y = softmax(Q Kᵀ / √d) V for each head.
/// qkv: [samples, tokens, 3 · heads · d] -> [samples, tokens, heads · d]
inline Values attention(const Values& qkv, std::size_t samples, std::size_t tokens, std::size_t heads, std::size_t d) {
  Values y(samples * tokens * heads * d, 0.0);
  const auto at = [&](std::size_t n, std::size_t t, std::size_t part, std::size_t h, std::size_t i) {
    return qkv[(((n * tokens + t) * 3 + part) * heads + h) * d + i];
  };
  for (std::size_t n = 0; n < samples; ++n)
    for (std::size_t h = 0; h < heads; ++h)
      for (std::size_t t = 0; t < tokens; ++t) {
        Values weights(tokens, 0.0);
        for (std::size_t s = 0; s < tokens; ++s)
          for (std::size_t i = 0; i < d; ++i)
            weights[s] += at(n, t, 0, h, i) * at(n, s, 1, h, i) / std::sqrt(static_cast<double>(d));
        const double largest = *std::max_element(weights.begin(), weights.end());
        double sum = 0;
        for (double& w : weights) sum += w = std::exp(w - largest);
        for (std::size_t s = 0; s < tokens; ++s)
          for (std::size_t i = 0; i < d; ++i)
            y[((n * tokens + t) * heads + h) * d + i] += weights[s] / sum * at(n, s, 2, h, i);
      }
  return y;
}

/// Class token, then patches, plus position.   patches: [samples, tokens, features]
inline Values embed_tokens(const Values& patches, const Values& class_token, const Values& position,
                           std::size_t samples) {
  const std::size_t length = patches.size() / samples;
  Values y;
  for (std::size_t n = 0; n < samples; ++n) {
    Values sequence = class_token;
    sequence.insert(sequence.end(), patches.begin() + static_cast<std::ptrdiff_t>(n * length),
                    patches.begin() + static_cast<std::ptrdiff_t>((n + 1) * length));
    for (std::size_t i = 0; i < sequence.size(); ++i) y.push_back(sequence[i] + position[i]);
  }
  return y;
}

}  // namespace ab::reference
