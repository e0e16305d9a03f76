#pragma once
// SPDX-License-Identifier: MIT
//
// Pooling of NHWC activations over their two spatial dimensions. Backward passes gather: every input pixel
// looks up the windows that cover it, so that no two threads write to one place.

#include <utility>

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

/// f(0), … f(N − 1), written out: a loop that the compiler keeps would index arrays that are to lie in registers.
template <int N, class F> AB_HD void for_each_of(const F& f) {
  [&]<int... i>(std::integer_sequence<int, i...>) { (f(i), ...); }
  (std::make_integer_sequence<int, N>{});
}

/// One line of output pixels per team. The first of equal elements wins, and NaN wins over everything. `kKernel`, on a GPU: the
/// height and width of the windows, so that a lane asks for a whole window at once; 0: any.
template <class T, int kKernel> struct MaxPool {
  using C = compute_t<T>;
  PoolSpec spec;
  const T* x;
  T* y;
  std::uint8_t* winner;

  template <class Team>
  requires(kKernel == 0 || !kIsSerial<Team>) AB_HD void operator()(const Team& team, std::int64_t line) const {
    const PoolWindows& rows = spec.rows;
    const PoolWindows& columns = spec.columns;
    const std::int64_t n = line / rows.out, oy = line % rows.out;
    constexpr int width = kLaneWidth<Team, T>;
    const bool packed = packable<width>(spec.channels, x, y, winner);
    for_each_block<width>(team, columns.out, spec.channels, packed, [&](std::int64_t ox, std::int64_t c, auto count) {
      const T* const image = x + n * rows.in * columns.in * spec.channels + c;
      const auto value_at = [&](std::int64_t iy, std::int64_t ix) {
        return load(image + (iy * columns.in + ix) * spec.channels, count);
      };
      C best[width];
      int at[width];
      const auto take = [&](const auto& xs, int offset) {
        for (int j = 0; j < count; ++j) {
          const C v = xs[j];
          const bool wins = (v > best[j]) | (v != v);
          best[j] = wins ? v : best[j];
          at[j] = wins ? offset : at[j];
        }
      };
      const auto start_with = [&](const auto& xs, int offset) {
        for (int j = 0; j < count; ++j) {
          best[j] = xs[j];
          at[j] = offset;
        }
      };
      const std::int64_t top = rows.begin(oy), left = columns.begin(ox);
      if constexpr (kKernel > 0) {
        // What lies outside is replaced by the nearest inside, which is of the window too and wins or loses as itself.
        const auto inside = [](std::int64_t i, std::int64_t in) { return i < 0 ? 0 : i < in ? i : in - 1; };
        const std::int64_t start_y = rows.start(oy), start_x = columns.start(ox);
        decltype(value_at(0, 0)) window[kKernel][kKernel];
        for (int i = 0; i < kKernel; ++i)
          for (int k = 0; k < kKernel; ++k)
            window[i][k] = value_at(inside(start_y + i, rows.in), inside(start_x + k, columns.in));
        const auto offset_at = [&](int i, int k) {
          return static_cast<int>((inside(start_y + i, rows.in) - start_y) * kKernel + inside(start_x + k, columns.in) -
                                  start_x);
        };
        start_with(window[0][0], offset_at(0, 0));
        for (int i = 0; i < kKernel; ++i)
          for (int k = 0; k < kKernel; ++k) take(window[i][k], offset_at(i, k));
      } else {
        const auto offset_at = [&](std::int64_t iy, std::int64_t ix) {
          return static_cast<int>((iy - rows.start(oy)) * columns.kernel + ix - columns.start(ox));
        };
        start_with(value_at(top, left), offset_at(top, left));
        for (std::int64_t iy = top; iy < rows.end(oy); ++iy)
          for (std::int64_t ix = left; ix < columns.end(ox); ++ix) take(value_at(iy, ix), offset_at(iy, ix));
      }
      const std::int64_t to = (line * columns.out + ox) * spec.channels + c;
      Store ys(y + to, count);
      for (int j = 0; j < count; ++j) ys[j] = static_cast<T>(best[j]);
      Store winners(winner + to, count);
      for (int j = 0; j < count; ++j) winners[j] = static_cast<std::uint8_t>(at[j]);
    });
  }
};

/// One line of input pixels per team: the gradients of the windows that this pixel won. `kCovers`, on a GPU: how many windows cover
/// a row or a column of pixels at most, so that a lane asks for all of them at once; 0: any number.
template <class T, int kCovers> struct MaxPoolBackward {
  using C = compute_t<T>;
  PoolSpec spec;
  const T* dy;
  const std::uint8_t* winner;
  T* dx;

  template <class Team>
  requires(kCovers == 0 || !kIsSerial<Team>) AB_HD void operator()(const Team& team, std::int64_t line) const {
    const PoolWindows& rows = spec.rows;
    const PoolWindows& columns = spec.columns;
    const std::int64_t n = line / rows.in, iy = line % rows.in;
    const std::int64_t first_y = rows.first_cover(iy), last_y = rows.last_cover(iy);
    constexpr int width = kLaneWidth<Team, T>;
    const bool packed = packable<width>(spec.channels, dy, winner, dx);
    for_each_block<width>(team, columns.in, spec.channels, packed, [&](std::int64_t ix, std::int64_t c, auto count) {
      const std::int64_t first_x = columns.first_cover(ix), last_x = columns.last_cover(ix);
      const auto place = [&](std::int64_t oy, std::int64_t ox) {
        return ((n * rows.out + oy) * columns.out + ox) * spec.channels + c;
      };
      const auto offset_in = [&](std::int64_t oy, std::int64_t ox) {
        return static_cast<int>((iy - rows.start(oy)) * columns.kernel + ix - columns.start(ox));
      };
      C sum[width] = {};
      const auto add = [&](const auto& dys, const auto& winners, int offset) {
        for (int j = 0; j < count; ++j) sum[j] += winners[j] == offset ? dys[j] : C{0};
      };
      if constexpr (kCovers > 0) {
        decltype(load(dy, count)) dys[kCovers * kCovers];
        decltype(load(winner, count)) winners[kCovers * kCovers];
        const auto at = [](std::int64_t first, int i, std::int64_t last) {
          return first + i < last ? first + i : last;
        };
        // Where fewer windows cover the pixel, a place is that of another, whose winner lies nowhere.
        constexpr int kNowhere = -1;
        for_each_of<kCovers * kCovers>([&](int i) {
          const std::int64_t from = place(at(first_y, i / kCovers, last_y), at(first_x, i % kCovers, last_x));
          dys[i] = load(dy + from, count);
          winners[i] = load(winner + from, count);
        });
        for_each_of<kCovers * kCovers>([&](int i) {
          const std::int64_t oy = first_y + i / kCovers, ox = first_x + i % kCovers;
          add(dys[i], winners[i], oy <= last_y && ox <= last_x ? offset_in(oy, ox) : kNowhere);
        });
      } else {
        for (std::int64_t oy = first_y; oy <= last_y; ++oy)
          for (std::int64_t ox = first_x; ox <= last_x; ++ox)
            add(load(dy + place(oy, ox), count), load(winner + place(oy, ox), count), offset_in(oy, ox));
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
