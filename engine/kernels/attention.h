#pragma once
// SPDX-License-Identifier: MIT
//
// The kernels of a transformer beside its products: softmax, and its tokens.

#include <limits>

#include "engine/core/tensor.h"
#include "engine/kernels/elementwise_functors.h"
#include "engine/kernels/lanes.h"
#include "engine/kernels/special_functions.h"

namespace ab {

// Softmax over the first C elements of the last dimension, in place; those behind them do not count.   t: [..., at least C]
//   y_c = exp(x_c − max x) / Σ exp(x − max x)
//   dx_c = y_c · (dy_c − Σ y · dy)

/// x becomes y.
void softmax_in_place(const Tensor& x, std::int64_t columns);
/// dy becomes dx.   y: the forward result
void softmax_backward_in_place(const Tensor& dy, const Tensor& y, std::int64_t columns);

namespace kernels {

/// One row per team. The exponential is taken twice, so that of 16 bits only the result is rounded.
template <class T> struct Softmax {
  using C = compute_t<T>;
  T* x;
  std::int64_t stored, columns;  // elements of a row in memory, and those that count

  template <class Team> AB_HD void operator()(const Team& team, std::int64_t row) const {
    T* values = x + row * stored;
    const C largest = lane_max<C>(
        team, columns, -std::numeric_limits<C>::infinity(), [](C v) { return v; }, values);
    const auto power = [=](C v) { return exp_of_negative(v - largest); };
    const C inverse = C{1} / lane_sum<C>(team, columns, power, values);
    lane_map(
        team, columns, values, [=](C v) { return power(v) * inverse; }, values);
  }
};

/// One row per team.
template <class T> struct SoftmaxBackward {
  using C = compute_t<T>;
  T* dy;
  const T* y;
  std::int64_t stored, columns;

  template <class Team> AB_HD void operator()(const Team& team, std::int64_t row) const {
    T* gradient = dy + row * stored;
    const T* value = y + row * stored;
    const C mean = lane_sum<C>(
        team, columns, [](C v, C g) { return v * g; }, value, gradient);
    lane_map(
        team, columns, gradient, [=](C v, C g) { return v * (g - mean); }, value, gradient);
  }
};

}  // namespace kernels

// The tokens of a vision transformer: a sequence of vectors for each sample, the first of them the class token.

/// y[n, 0] = class_token + position[0],  y[n, t] = patches[n, t − 1] + position[t]
/// patches: [N, T, D], class_token: D elements, position: (T + 1) · D elements  -> [N, T + 1, D]
Tensor embed_tokens_forward(const Tensor& patches, const Tensor& class_token, const Tensor& position);

/// Copies tokens [begin, begin + count) of every sample.   x: [N, T, D] -> [N, count, D]
Tensor take_tokens(const Tensor& x, std::int64_t begin, std::int64_t count);
/// Zeros, but for token 0 of every sample, which is x[n].   x: [N, D] -> [N, T, D]
Tensor spread_first_token(const Tensor& x, std::int64_t tokens);

namespace kernels {

/// One token of one sample per row.
template <class T> struct EmbedTokens {
  using C = compute_t<T>;
  const T* patches;
  const T* class_token;
  const T* position;
  T* y;
  std::int64_t tokens, features;

  template <class Team> AB_HD void operator()(const Team& team, std::int64_t row) const {
    const std::int64_t sample = row / tokens, t = row % tokens;
    const T* from = t == 0 ? class_token : patches + (sample * (tokens - 1) + t - 1) * features;
    const T* at = position + t * features;
    lane_map(team, features, y + row * features, Add<C>{}, from, at);
  }
};

/// One sample per row: `length` elements from one stride to another.
template <class T> struct CopyRows {
  const T* from;
  T* to;
  std::int64_t from_stride, to_stride, length;

  template <class Team> AB_HD void operator()(const Team& team, std::int64_t row) const {
    lane_map(team, length, to + row * to_stride, Same<compute_t<T>>{}, from + row * from_stride);
  }
};

}  // namespace kernels
}  // namespace ab
