#pragma once
// SPDX-License-Identifier: MIT
//
// How the lanes of a team share a row. On a GPU neighbouring lanes take neighbouring elements; on a CPU the
// only lane takes a block of neighbours at a time and keeps one accumulator for each, which is what lets the
// compiler use vector registers without being allowed to reorder a sum.

#include <type_traits>

#include "engine/backend/exec.h"

namespace ab {

/// The largest number of neighbouring elements that one lane takes at a time.
template <class Team> inline constexpr int kLaneWidth = std::is_same_v<Team, SerialTeam> ? 64 : 1;

/// body(begin, count) for every block of this lane in [0, n), in ascending order. `count` converts to int; it
/// is a compile-time constant except for the last few elements, so take it as `auto`.
template <class Team, class Body>
AB_HD void for_each_block(const Team& team, std::int64_t n, const Body& body) {
  constexpr int width = kLaneWidth<Team>;
  if constexpr (width == 1) {
    for (std::int64_t i = team.lane(); i < n; i += team.size()) body(i, std::integral_constant<int, 1>{});
  } else {
    std::int64_t begin = 0;
    for (; n - begin >= width; begin += width) body(begin, std::integral_constant<int, width>{});
    for (; n - begin >= width / 2; begin += width / 2) body(begin, std::integral_constant<int, width / 2>{});
    if (begin < n) body(begin, static_cast<int>(n - begin));
  }
}

/// body(row, begin, count) for every block of this lane in a [rows, n] table: for_each_block over each row,
/// but short rows are shared out too, so that a wide team is busy even when n is small.
template <class Team, class Body>
AB_HD void for_each_block(const Team& team, std::int64_t rows, std::int64_t n, const Body& body) {
  if constexpr (kLaneWidth<Team> == 1) {
    const auto width = static_cast<int>(n), items = static_cast<int>(rows * n);
    for (int i = team.lane(); i < items; i += team.size())
      body(std::int64_t{i / width}, std::int64_t{i % width}, std::integral_constant<int, 1>{});
  } else {
    for (std::int64_t row = 0; row < rows; ++row)
      for_each_block(team, n, [&](std::int64_t begin, auto count) { body(row, begin, count); });
  }
}

/// Where lanes share a long sum instead, each row of a kernel is one such block: how many there are in [0, n)
/// on `device`, and body(begin, count) for one of them.
inline std::int64_t blocks_of(Device device, std::int64_t n) {
  const std::int64_t width = runs_as_loops(device) ? kLaneWidth<SerialTeam> : 1;
  return (n + width - 1) / width;
}
template <class Team, class Body>
AB_HD void with_block(std::int64_t n, std::int64_t block, const Body& body) {
  constexpr int width = kLaneWidth<Team>;
  const std::int64_t begin = block * width;
  if (n - begin >= width)
    body(begin, std::integral_constant<int, width>{});
  else
    body(begin, static_cast<int>(n - begin));
}

/// Σ f(i) for i in [0, n), known to every lane. All lanes must call it.
template <class V, class Team, class F> AB_HD V lane_sum(const Team& team, std::int64_t n, const F& f) {
  constexpr int width = kLaneWidth<Team>;
  V sums[width] = {};
  for_each_block(team, n, [&](std::int64_t begin, auto count) {
    for (int j = 0; j < count; ++j) sums[j] += f(begin + j);
  });
  for (int half = width / 2; half > 0; half /= 2)
    for (int j = 0; j < half; ++j) sums[j] += sums[j + half];
  return team.sum(sums[0]);
}

/// max(lowest, max f(i) for i in [0, n)), known to every lane. All lanes must call it.
template <class V, class Team, class F>
AB_HD V lane_max(const Team& team, std::int64_t n, V lowest, const F& f) {
  constexpr int width = kLaneWidth<Team>;
  V best[width];
  for (int j = 0; j < width; ++j) best[j] = lowest;
  for_each_block(team, n, [&](std::int64_t begin, auto count) {
    for (int j = 0; j < count; ++j) {
      const V v = f(begin + j);
      best[j] = best[j] < v ? v : best[j];
    }
  });
  for (int j = 1; j < width; ++j) best[0] = best[0] < best[j] ? best[j] : best[0];
  return team.max(best[0]);
}

}  // namespace ab
