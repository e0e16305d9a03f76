#pragma once
// SPDX-License-Identifier: MIT
//
// How the lanes of a team share a row. On a GPU neighbouring lanes take neighbouring Packs of 16 bytes, or
// neighbouring elements where those are not aligned; on a CPU the only lane takes a block of neighbours at a time
// and keeps one accumulator for each, which is what lets the compiler use vector registers without being allowed
// to reorder a sum.

#include "engine/device/exec.h"
#include "engine/kernels/pack.h"

namespace ab {

template <class Team> inline constexpr bool kIsSerial = std::is_same_v<Team, SerialTeam>;

/// The largest number of neighbours that one lane takes at a time where elements of all types T are read and
/// written together.
template <class Team, class... T> inline constexpr int kLaneWidth = kIsSerial<Team> ? 64 : kPackWidth<T...>;

/// body(begin, count) for every block of this lane in [0, n). A lane of a GPU takes blocks of kWidth as Packs, if
/// they are `packed` (see packable()), and what is left element by element. `count` converts to int; it is a
/// compile-time constant except for the last few elements on a CPU, so take it as `auto`.
template <int kWidth, class Team, class Body>
AB_HD void for_each_block(const Team& team, std::int64_t n, bool packed, const Body& body) {
  if constexpr (kIsSerial<Team>) {
    std::int64_t begin = 0;
    for (; n - begin >= kWidth; begin += kWidth) body(begin, std::integral_constant<int, kWidth>{});
    for (; n - begin >= kWidth / 2; begin += kWidth / 2) body(begin, std::integral_constant<int, kWidth / 2>{});
    if (begin < n) body(begin, static_cast<int>(n - begin));
  } else {
    const std::int64_t in_packs = packed ? n / kWidth * kWidth : 0;
    for (std::int64_t i = std::int64_t{team.lane()} * kWidth; i < in_packs; i += std::int64_t{team.size()} * kWidth)
      body(i, Packed<kWidth>{});
    for (std::int64_t i = in_packs + team.lane(); i < n; i += team.size()) body(i, std::integral_constant<int, 1>{});
  }
}

/// body(row, begin, count) for every block of this lane in a [rows, n] table: for_each_block over each row,
/// but short rows are shared out too, so that a wide team is busy even when n is small.
template <int kWidth, class Team, class Body>
AB_HD void for_each_block(const Team& team, std::int64_t rows, std::int64_t n, bool packed, const Body& body) {
  if constexpr (kIsSerial<Team>) {
    for (std::int64_t row = 0; row < rows; ++row)
      for_each_block<kWidth>(team, n, packed, [&](std::int64_t begin, auto count) { body(row, begin, count); });
  } else {
    const auto share_out = [&](auto count) {
      const int across = static_cast<int>(n) / count, items = static_cast<int>(rows) * across;
      for (int i = team.lane(); i < items; i += team.size())
        body(std::int64_t{i / across}, std::int64_t{i % across * count}, count);
    };
    if (packed && n % kWidth == 0) share_out(Packed<kWidth>{});
    else share_out(std::integral_constant<int, 1>{});
  }
}

/// Where lanes share a long sum instead, each row of a kernel is one block of elements of type T: how many there
/// are in [0, n) on `device`, and body(begin, count) for one of them.
template <class T> std::int64_t blocks_of(Device device, std::int64_t n) {
  const std::int64_t width = device.is_like_cpu() ? kLaneWidth<SerialTeam, T> : kPackWidth<T>;
  return (n + width - 1) / width;
}
template <class T, class Team, class Body>
AB_HD void with_block(std::int64_t n, std::int64_t block, bool packed, const Body& body) {
  constexpr int width = kLaneWidth<Team, T>;
  const std::int64_t begin = block * width;
  const std::int64_t end = n - begin < width ? n : begin + width;
  if constexpr (!kIsSerial<Team>) {
    if (packed && end - begin == width) return body(begin, Packed<width>{});
    for (std::int64_t i = begin; i < end; ++i) body(i, std::integral_constant<int, 1>{});
  } else if (end - begin == width) {
    body(begin, std::integral_constant<int, width>{});
  } else {
    body(begin, static_cast<int>(end - begin));
  }
}

/// A block in each row of a group, the rows `stride` elements apart.
template <class T, class Count, int kRows> struct LoadedRows {
  Loaded<T, Count> rows[kRows];
  AB_HD const Loaded<T, Count>& operator[](int row) const { return rows[row]; }
};
template <class T, class Count, int kRows>
AB_HD auto load_rows(const T* from, std::int64_t stride, Count count, std::integral_constant<int, kRows>) {
  LoadedRows<T, Count, kRows> loaded;
  for (int row = 0; row < kRows; ++row) loaded.rows[row] = load(from + row * stride, count);
  return loaded;
}

/// y[i] = f(x[i], …), or f(i, x[i], …) when f takes the index, for i in [0, n). y may be one of the inputs.
template <class Team, class To, class F, class... From>
AB_HD void lane_map(const Team& team, std::int64_t n, To* y, const F& f, const From*... x) {
  constexpr int width = kLaneWidth<Team, To, From...>;
  for_each_block<width>(team, n, packable<width>(width, y, x...), [&](std::int64_t begin, auto count) {
    assign_block(y, begin, count, f, load(x + begin, count)...);
  });
}

/// Σ f(x[i], …), or f(i, x[i], …) when f takes the index, for i in [0, n), known to every lane. All lanes must
/// call it.
template <class V, class Team, class F, class... From>
AB_HD V lane_sum(const Team& team, std::int64_t n, const F& f, const From*... x) {
  constexpr int width = kLaneWidth<Team, From...>;
  V sums[width] = {};
  for_each_block<width>(team, n, packable<width>(width, x...), [&](std::int64_t begin, auto count) {
    [&](const auto&... xs) {
      for (int j = 0; j < count; ++j) sums[j] += apply_at(f, begin + j, xs[j]...);
    }(load(x + begin, count)...);
  });
  for (int half = width / 2; half > 0; half /= 2)
    for (int j = 0; j < half; ++j) sums[j] += sums[j + half];
  return team.sum(sums[0]);
}

/// max(lowest, max f(x[i], …) for i in [0, n)), known to every lane. All lanes must call it.
template <class V, class Team, class F, class... From>
AB_HD V lane_max(const Team& team, std::int64_t n, V lowest, const F& f, const From*... x) {
  constexpr int width = kLaneWidth<Team, From...>;
  V best[width];
  for (int j = 0; j < width; ++j) best[j] = lowest;
  for_each_block<width>(team, n, packable<width>(width, x...), [&](std::int64_t begin, auto count) {
    [&](const auto&... xs) {
      for (int j = 0; j < count; ++j) {
        const V v = apply_at(f, begin + j, xs[j]...);
        best[j] = best[j] < v ? v : best[j];
      }
    }(load(x + begin, count)...);
  });
  for (int j = 1; j < width; ++j) best[0] = best[0] < best[j] ? best[j] : best[0];
  return team.max(best[0]);
}

}  // namespace ab
