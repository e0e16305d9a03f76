#pragma once
// SPDX-License-Identifier: MIT
//
// The functor of epilogue.h.

#include "engine/kernels/lanes.h"

namespace ab::kernels {

/// One row per team: z = v + bias in place of v, and y = activation(z). y may be z.
template <class T, class Activation> struct BiasAndActivation {
  using C = compute_t<T>;
  T* z;
  T* y;
  const T* bias;
  std::int64_t columns;

  template <class Team> AB_HD void operator()(const Team& team, std::int64_t row) const {
    T* const z_row = z + row * columns;
    T* const y_row = y + row * columns;
    constexpr int width = kLaneWidth<Team, T>;
    const bool packed = packable<width>(width, z_row, y_row, bias);
    for_each_block<width>(team, columns, packed, [&](std::int64_t begin, auto count) {
      const auto v = load(z_row + begin, count), b = load(bias + begin, count);
      // y first: on a CPU, v is read where it is used, and z takes its place.
      assign_block(
          y_row, begin, count, [](C x, C addend) { return Activation{}(x + addend); }, v, b);
      if (z != y)
        assign_block(
            z_row, begin, count, [](C x, C addend) { return x + addend; }, v, b);
    });
  }
};

/// One row per team: y = v + bias + addend in place of v.
template <class T> struct BiasAndAddend {
  using C = compute_t<T>;
  T* y;
  const T* bias;
  const T* addend;
  std::int64_t columns;

  template <class Team> AB_HD void operator()(const Team& team, std::int64_t row) const {
    T* const to = y + row * columns;
    lane_map(
        team, columns, to, [](C v, C b, C a) { return v + b + a; }, to, bias, addend + row * columns);
  }
};

}  // namespace ab::kernels
