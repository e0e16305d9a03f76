#pragma once
// SPDX-License-Identifier: MIT
//
// Softmax over the first C elements of the last dimension, in place; those behind them do not count.   t: [..., at least C]
//   y_c = exp(x_c − max x) / Σ exp(x − max x)
//   dx_c = y_c · (dy_c − Σ y · dy)

#include <limits>

#include "engine/core/tensor.h"
#include "engine/kernels/exponential.h"
#include "engine/kernels/lanes.h"

namespace ab {

/// x becomes y.
void softmax_in_place(const Tensor& x, std::int64_t columns);
/// dy becomes dx.   y: the forward result
void softmax_backward_in_place(const Tensor& dy, const Tensor& y, std::int64_t columns);

namespace kernels {

/// One row per team. A lane reads again only what it wrote itself.
template <class T> struct Softmax {
  using C = compute_t<T>;
  T* x;
  std::int64_t stored, columns;  // elements of a row in memory, and those that count

  template <class Team> AB_HD void operator()(const Team& team, std::int64_t row) const {
    T* values = x + row * stored;
    const auto same = [](C v) { return v; };
    const C largest = lane_max<C>(team, columns, -std::numeric_limits<C>::infinity(), same, values);
    lane_map(
        team, columns, values, [=](C v) { return exp_of_negative(v - largest); }, values);
    const C inverse = C{1} / lane_sum<C>(team, columns, same, values);
    lane_map(
        team, columns, values, [=](C v) { return v * inverse; }, values);
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
}  // namespace ab
