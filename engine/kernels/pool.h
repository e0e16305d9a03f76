#pragma once
// SPDX-License-Identifier: MIT
//
// Pooling of NHWC activations over their two spatial dimensions. Backward passes gather: every input pixel
// looks up the windows that cover it, so that no two threads write to one place.

#include "engine/core/tensor.h"
#include "engine/kernels/lanes.h"

namespace ab {

/// The windows along one spatial dimension.
///   regular   output o covers inputs [o · stride − padding, o · stride − padding + kernel), cut to the input
///   adaptive  output o covers inputs [floor(o · in / out), ceil((o + 1) · in / out))
struct PoolWindows {
  std::int64_t in = 0, out = 0;
  std::int64_t kernel = 0, stride = 1, padding = 0;  ///< kernel 0: adaptive

  static PoolWindows regular(std::int64_t in, std::int64_t kernel, std::int64_t stride, std::int64_t padding) {
    return {in, (in + 2 * padding - kernel) / stride + 1, kernel, stride, padding};
  }
  static PoolWindows adaptive(std::int64_t in, std::int64_t out) { return {in, out}; }

  AB_HD std::int64_t start(std::int64_t o) const { return kernel ? o * stride - padding : o * in / out; }
  AB_HD std::int64_t begin(std::int64_t o) const { return start(o) < 0 ? 0 : start(o); }
  AB_HD std::int64_t end(std::int64_t o) const {
    const std::int64_t e = kernel ? start(o) + kernel : ((o + 1) * in + out - 1) / out;
    return e < in ? e : in;
  }
  /// The divisor of a mean: padded zeros count.
  AB_HD std::int64_t weight(std::int64_t o) const { return kernel ? kernel : end(o) - begin(o); }
  /// The windows that cover input i are [first_cover, last_cover].
  AB_HD std::int64_t first_cover(std::int64_t i) const {
    if (!kernel) return i * out / in;
    const std::int64_t reach = i + padding - kernel;  // the last start that no longer reaches i
    return reach < 0 ? 0 : reach / stride + 1;
  }
  AB_HD std::int64_t last_cover(std::int64_t i) const {
    const std::int64_t o = kernel ? (i + padding) / stride : ((i + 1) * out + in - 1) / in - 1;
    return o < out ? o : out - 1;
  }
};

struct PoolSpec {
  std::int64_t batch = 0, channels = 0;
  PoolWindows rows, columns;

  Shape in_shape() const { return {batch, rows.in, columns.in, channels}; }
  Shape out_shape() const { return {batch, rows.out, columns.out, channels}; }
};

struct MaxPoolResult {
  Tensor y;
  Tensor winner;  ///< uint8, shape of y: offset of the largest element in its window, row-major
};
/// Windows of at most 256 elements.
MaxPoolResult max_pool_forward(const Tensor& x, const PoolSpec& spec);
Tensor max_pool_backward(const Tensor& dy, const Tensor& winner, const PoolSpec& spec);

Tensor avg_pool_forward(const Tensor& x, const PoolSpec& spec);
Tensor avg_pool_backward(const Tensor& dy, const PoolSpec& spec);

namespace kernels {

/// One line of output pixels per team. The first of equal elements wins, and NaN wins over everything.
template <class T> struct MaxPool {
  using C = compute_t<T>;
  PoolSpec spec;
  const T* x;
  T* y;
  std::uint8_t* winner;

  template <class Team> AB_HD void operator()(const Team& team, std::int64_t line) const {
    const PoolWindows& rows = spec.rows;
    const PoolWindows& columns = spec.columns;
    const std::int64_t n = line / rows.out, oy = line % rows.out;
    constexpr int width = kLaneWidth<Team, T>;
    const bool packed = packable<width>(spec.channels, x, y, winner);
    for_each_block<width>(team, columns.out, spec.channels, packed, [&](std::int64_t ox, std::int64_t c, auto count) {
      C best[width];
      int at[width];
      const std::int64_t top = rows.begin(oy), left = columns.begin(ox);
      const auto corner = load(x + ((n * rows.in + top) * columns.in + left) * spec.channels + c, count);
      const auto corner_offset = static_cast<int>((top - rows.start(oy)) * columns.kernel + left - columns.start(ox));
      for (int j = 0; j < count; ++j) {
        best[j] = corner[j];
        at[j] = corner_offset;
      }
      for (std::int64_t iy = top; iy < rows.end(oy); ++iy)
        for (std::int64_t ix = left; ix < columns.end(ox); ++ix) {
          const auto xs = load(x + ((n * rows.in + iy) * columns.in + ix) * spec.channels + c, count);
          const auto offset = static_cast<int>((iy - rows.start(oy)) * columns.kernel + ix - columns.start(ox));
          for (int j = 0; j < count; ++j) {
            const C v = xs[j];
            const bool wins = (v > best[j]) | (v != v);
            best[j] = wins ? v : best[j];
            at[j] = wins ? offset : at[j];
          }
        }
      const std::int64_t to = (line * columns.out + ox) * spec.channels + c;
      Store ys(y + to, count);
      for (int j = 0; j < count; ++j) ys[j] = static_cast<T>(best[j]);
      Store winners(winner + to, count);
      for (int j = 0; j < count; ++j) winners[j] = static_cast<std::uint8_t>(at[j]);
    });
  }
};

/// One line of input pixels per team: the gradients of the windows that this pixel won.
template <class T> struct MaxPoolBackward {
  using C = compute_t<T>;
  PoolSpec spec;
  const T* dy;
  const std::uint8_t* winner;
  T* dx;

  template <class Team> AB_HD void operator()(const Team& team, std::int64_t line) const {
    const PoolWindows& rows = spec.rows;
    const PoolWindows& columns = spec.columns;
    const std::int64_t n = line / rows.in, iy = line % rows.in;
    constexpr int width = kLaneWidth<Team, T>;
    const bool packed = packable<width>(spec.channels, dy, winner, dx);
    for_each_block<width>(team, columns.in, spec.channels, packed, [&](std::int64_t ix, std::int64_t c, auto count) {
      C sum[width] = {};
      for (std::int64_t oy = rows.first_cover(iy); oy <= rows.last_cover(iy); ++oy)
        for (std::int64_t ox = columns.first_cover(ix); ox <= columns.last_cover(ix); ++ox) {
          const std::int64_t from = ((n * rows.out + oy) * columns.out + ox) * spec.channels + c;
          const auto offset = static_cast<int>((iy - rows.start(oy)) * columns.kernel + ix - columns.start(ox));
          const auto dys = load(dy + from, count);
          const auto winners = load(winner + from, count);
          for (int j = 0; j < count; ++j) sum[j] += winners[j] == offset ? dys[j] : C{0};
        }
      Store dxs(dx + (line * columns.in + ix) * spec.channels + c, count);
      for (int j = 0; j < count; ++j) dxs[j] = static_cast<T>(sum[j]);
    });
  }
};

/// One line of output pixels per team.
template <class T> struct AvgPool {
  using C = compute_t<T>;
  PoolSpec spec;
  const T* x;
  T* y;

  template <class Team> AB_HD void operator()(const Team& team, std::int64_t line) const {
    const PoolWindows& rows = spec.rows;
    const PoolWindows& columns = spec.columns;
    const std::int64_t n = line / rows.out, oy = line % rows.out;
    constexpr int width = kLaneWidth<Team, T>;
    const bool packed = packable<width>(spec.channels, x, y);
    for_each_block<width>(team, columns.out, spec.channels, packed, [&](std::int64_t ox, std::int64_t c, auto count) {
      C sum[width] = {};
      for (std::int64_t iy = rows.begin(oy); iy < rows.end(oy); ++iy)
        for (std::int64_t ix = columns.begin(ox); ix < columns.end(ox); ++ix) {
          const auto xs = load(x + ((n * rows.in + iy) * columns.in + ix) * spec.channels + c, count);
          for (int j = 0; j < count; ++j) sum[j] += xs[j];
        }
      const C scale = C{1} / static_cast<C>(rows.weight(oy) * columns.weight(ox));
      Store ys(y + (line * columns.out + ox) * spec.channels + c, count);
      for (int j = 0; j < count; ++j) ys[j] = static_cast<T>(sum[j] * scale);
    });
  }
};

/// One line of input pixels per team.
template <class T> struct AvgPoolBackward {
  using C = compute_t<T>;
  PoolSpec spec;
  const T* dy;
  T* dx;

  template <class Team> AB_HD void operator()(const Team& team, std::int64_t line) const {
    const PoolWindows& rows = spec.rows;
    const PoolWindows& columns = spec.columns;
    const std::int64_t n = line / rows.in, iy = line % rows.in;
    constexpr int width = kLaneWidth<Team, T>;
    const bool packed = packable<width>(spec.channels, dy, dx);
    for_each_block<width>(team, columns.in, spec.channels, packed, [&](std::int64_t ix, std::int64_t c, auto count) {
      C sum[width] = {};
      for (std::int64_t oy = rows.first_cover(iy); oy <= rows.last_cover(iy); ++oy)
        for (std::int64_t ox = columns.first_cover(ix); ox <= columns.last_cover(ix); ++ox) {
          const auto dys = load(dy + ((n * rows.out + oy) * columns.out + ox) * spec.channels + c, count);
          const C scale = C{1} / static_cast<C>(rows.weight(oy) * columns.weight(ox));
          for (int j = 0; j < count; ++j) sum[j] += dys[j] * scale;
        }
      Store dxs(dx + (line * columns.in + ix) * spec.channels + c, count);
      for (int j = 0; j < count; ++j) dxs[j] = static_cast<T>(sum[j]);
    });
  }
};

}  // namespace kernels
}  // namespace ab
