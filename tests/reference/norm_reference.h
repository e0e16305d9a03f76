#pragma once
// SPDX-License-Identifier: MIT
//
// Batch and layer normalisation by definition, in double: slow and obviously right, for tests.

#include <cmath>
#include <vector>

namespace ab::reference {

using Values = std::vector<double>;

/// Mean and (biased) variance per channel.   x: [pixels, C]
struct Moments {
  Values mean, var;
};
inline Moments batch_moments(const Values& x, std::size_t channels) {
  const auto pixels = static_cast<double>(x.size() / channels);
  Moments m{Values(channels, 0.0), Values(channels, 0.0)};
  for (std::size_t i = 0; i < x.size(); ++i) m.mean[i % channels] += x[i] / pixels;
  for (std::size_t i = 0; i < x.size(); ++i) m.var[i % channels] += std::pow(x[i] - m.mean[i % channels], 2) / pixels;
  return m;
}

/// y = act(gamma · (x − mean) / sqrt(var + epsilon) + beta + residual); `residual` may be empty.
inline Values batch_norm(const Values& x, const Moments& moments, const Values& gamma, const Values& beta,
                         const Values& residual, bool relu, double epsilon) {
  const std::size_t channels = gamma.size();
  Values y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t c = i % channels;
    y[i] = gamma[c] * (x[i] - moments.mean[c]) / std::sqrt(moments.var[c] + epsilon) + beta[c];
    if (!residual.empty()) y[i] += residual[i];
    if (relu) y[i] = std::fmax(y[i], 0.0);
  }
  return y;
}

/// y = gamma · (x − mean) / sqrt(var + epsilon) + beta, mean and var of each row.   x: [rows, C]
inline Values layer_norm(const Values& x, const Values& gamma, const Values& beta, double epsilon) {
  const std::size_t channels = gamma.size();
  Values y(x.size());
  for (std::size_t row = 0; row < x.size(); row += channels) {
    double mean = 0, var = 0;
    for (std::size_t c = 0; c < channels; ++c) mean += x[row + c] / static_cast<double>(channels);
    for (std::size_t c = 0; c < channels; ++c) var += std::pow(x[row + c] - mean, 2) / static_cast<double>(channels);
    for (std::size_t c = 0; c < channels; ++c)
      y[row + c] = gamma[c] * (x[row + c] - mean) / std::sqrt(var + epsilon) + beta[c];
  }
  return y;
}

}  // namespace ab::reference
