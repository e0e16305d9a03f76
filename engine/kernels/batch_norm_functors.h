#pragma once
// SPDX-License-Identifier: MIT
//
// The kernels of batch_norm.h: one normalises, others go backward, for the sums that are dbeta and dgamma, then dx and dresidual, in
// which g = dy where y > 0, or dy without a ReLU; the last ones take statistics.

#include <cmath>

#include "engine/core/dtype.h"
#include "engine/kernels/reduce_functors.h"

namespace ab::kernels {

// The way back through a ReLU needs to know where its result y is above 0. Where rows are whole Packs, a GPU's forward pass writes
// that down as bits, a byte for every Pack of y (16 bytes), which the two backward passes read in place of y. A CPU makes y again
// from x, which it reads anyway; with a residual it reads y.

enum class ReluGate : std::uint8_t {
  open,    ///< there was no ReLU
  result,  ///< y
  input,   ///< x, of which y is made again, by the same rounding
  bits,    ///< bit e % kPackWidth<T> of byte e / kPackWidth<T> tells whether element e of y is above 0
};

/// Whether a team may meet a gate.
template <class Team, ReluGate kGate>
concept Meets = (kIsSerial<Team> ? kGate != ReluGate::bits : kGate != ReluGate::input);

/// y, or its bits, of T, or the way from x to y.
template <class T, ReluGate kGate> struct GateOf {
  const T* y;
  const std::uint8_t* bits;
  const compute_t<T>* rstd = nullptr;
  const compute_t<T>* gamma = nullptr;
  const compute_t<T>* beta = nullptr;
};

/// The factor and the addend with which a block of channels becomes y; nothing, for gates that are stored.
template <class T, ReluGate kGate, int kWidth> struct WayToResult {
  template <class Count> AB_HD WayToResult(const GateOf<T, kGate>&, std::int64_t, std::int64_t, Count) {}
};
template <class T, int kWidth> struct WayToResult<T, ReluGate::input, kWidth> {
  compute_t<T> scale[kWidth], offset[kWidth];
  template <class Count>
  AB_HD WayToResult(const GateOf<T, ReluGate::input>& gate, std::int64_t channels, std::int64_t c, Count count) {
    compute_t<T> weight[kWidth];
    load_of_channels(scale, gate.rstd, channels, c, count);
    load_of_channels(weight, gate.gamma, channels, c, count);
    load_of_channels(offset, gate.beta, channels, c, count);
    for (int j = 0; j < count; ++j) scale[j] *= weight[j];
  }
};

/// For a block in each row of a group: whether element j of row u is above 0. Element `at` is the first of row 0.
template <class T, ReluGate kGate, class Count, int kRows> struct LoadedGates {
  const std::uint8_t* bits;
  std::int64_t at, stride;
  AB_HD bool operator()(int u, std::int64_t j) const {
    const std::int64_t e = at + u * stride + j;
    return (bits[e / kPackWidth<T>] >> (e % kPackWidth<T>)&1) != 0;
  }
};
template <class T, int kRows, int N> struct LoadedGates<T, ReluGate::bits, Packed<N>, kRows> {
  std::uint8_t bytes[kRows];
  AB_HD LoadedGates(const std::uint8_t* bits, std::int64_t at, std::int64_t stride) {
    static_assert(N == kPackWidth<T>);
    for (int u = 0; u < kRows; ++u) bytes[u] = bits[(at + u * stride) / N];
  }
  AB_HD bool operator()(int u, std::int64_t j) const { return (bytes[u] >> j & 1) != 0; }
};
template <class T, class Count, int kRows> struct LoadedGates<T, ReluGate::result, Count, kRows> {
  LoadedRows<T, Count, kRows> y;
  AB_HD bool operator()(int u, std::int64_t j) const { return y[u][j] > 0; }
};
template <class T, class Count, int kRows> struct LoadedGates<T, ReluGate::open, Count, kRows> {
  AB_HD bool operator()(int, std::int64_t) const { return true; }
};

template <class T, class Count, int kRows> struct LoadedGates<T, ReluGate::input, Count, kRows> {
  const LoadedRows<T, Count, kRows>& x;
  const compute_t<T>*center, *scale, *offset;
  AB_HD bool operator()(int u, std::int64_t j) const { return (x[u][j] - center[j]) * scale[j] + offset[j] > 0; }
};

/// Of rows whose x is `x`, and whose mean `center`.
template <class T, ReluGate kGate, int kWidth, class Count, int kRows>
AB_HD auto load_gates(const GateOf<T, kGate>& gate, [[maybe_unused]] const WayToResult<T, kGate, kWidth>& way,
                      [[maybe_unused]] const LoadedRows<T, Count, kRows>& x,
                      [[maybe_unused]] const compute_t<T>* center, std::int64_t at, std::int64_t stride, Count count,
                      std::integral_constant<int, kRows> group) {
  using Loaded = LoadedGates<T, kGate, Count, kRows>;
  if constexpr (kGate == ReluGate::open) return Loaded{};
  else if constexpr (kGate == ReluGate::result) return Loaded{load_rows(gate.y + at, stride, count, group)};
  else if constexpr (kGate == ReluGate::input) return Loaded{x, center, way.scale, way.offset};
  else return Loaded{gate.bits, at, stride};
}

/// Collects the bits of a Pack of y, and writes them when it goes out of scope. Nothing, for other gates.
template <class T, ReluGate kGate> struct StoredBits {
  AB_HD StoredBits(std::uint8_t*, std::int64_t /*at*/) {}
  AB_HD void set(std::int64_t /*j*/, bool /*above_zero*/) {}
};
template <class T> class StoredBits<T, ReluGate::bits> {
 public:
  AB_HD StoredBits(std::uint8_t* bits, std::int64_t at) : to_(bits + at / kPackWidth<T>) {}
  AB_HD ~StoredBits() { *to_ = byte_; }
  StoredBits(const StoredBits&) = delete;
  StoredBits& operator=(const StoredBits&) = delete;

  AB_HD void set(std::int64_t j, bool above_zero) {
    byte_ |= static_cast<std::uint8_t>(static_cast<int>(above_zero) << j);
  }

 private:
  std::uint8_t* to_;
  std::uint8_t byte_ = 0;
};

/// y = act((x − mean) · gamma · rstd + beta [+ residual]), one chunk per team. `kGate`: what backward will read of y; for
/// bits, rows are whole Packs.
template <class T, ReluGate kGate, bool kResidual> struct Normalise {
  using C = compute_t<T>;
  PixelTable table;
  const T* x;
  const T* residual;
  const C* mean;
  const C* rstd;
  const C* gamma;
  const C* beta;
  T* y;
  std::uint8_t* bits;

  template <class Team>
  requires Meets<Team, kGate> AB_HD void operator()(const Team& team, std::int64_t chunk) const {
    constexpr int width = kLaneWidth<Team, T>;
    const std::int64_t columns = table.columns();
    const ChunkRows rows = table.rows_of(chunk);
    for_each_block<width>(team, columns, packable<width>(columns, x, residual, y), [&](std::int64_t c, auto count) {
      C center[width], scale[width], offset[width], weight[width];
      load_of_channels(center, mean, table.channels, c, count);
      load_of_channels(scale, rstd, table.channels, c, count);
      load_of_channels(weight, gamma, table.channels, c, count);
      load_of_channels(offset, beta, table.channels, c, count);
      for (int j = 0; j < count; ++j) scale[j] *= weight[j];
      for_each_row_group<Team, kResidual ? 2 : 1>(rows, [&](std::int64_t row, auto group) {
        const std::int64_t at = row * columns + c;
        const auto xs = load_rows(x + at, columns, count, group);
        const auto residuals = load_rows(kResidual ? residual + at : x + at, columns, count, group);
        for (int u = 0; u < group; ++u) {
          Store ys(y + at + u * columns, count);
          StoredBits<T, kGate> ys_above_zero(bits, at + u * columns);
          for (int j = 0; j < count; ++j) {
            C v = (xs[u][j] - center[j]) * scale[j] + offset[j];
            if constexpr (kResidual) v += residuals[u][j];
            if constexpr (kGate != ReluGate::open) v = v < 0 ? C{0} : v;
            ys[j] = static_cast<T>(v);
            ys_above_zero.set(j, static_cast<C>(ys[j]) > 0);
          }
        }
      });
    });
  }
};

/// Per chunk and channel: Σ g and Σ g (x − mean).
template <class T, ReluGate kGate> struct ChunkGradSums {
  using C = compute_t<T>;
  PixelTable table;
  const T* dy;
  const T* x;
  GateOf<T, kGate> gate;
  const C* mean;
  C* sum_g;  // [chunks, columns], of which [chunks, channels] is the result
  C* sum_gx;

  template <class Team>
  requires Meets<Team, kGate> AB_HD void operator()(const Team& team, std::int64_t chunk) const {
    constexpr int width = kLaneWidth<Team, T>;
    const std::int64_t columns = table.columns();
    const ChunkRows rows = table.rows_of(chunk);
    for_each_block<width>(team, columns, packable<width>(columns, dy, x, gate.y), [&](std::int64_t c, auto count) {
      C center[width], sum[width] = {}, products[width] = {};
      load_of_channels(center, mean, table.channels, c, count);
      const WayToResult<T, kGate, width> way(gate, table.channels, c, count);
      for_each_row_group_from_last<Team, 2>(rows, [&](std::int64_t row, auto group) {
        const std::int64_t at = row * columns + c;
        const auto dys = load_rows(dy + at, columns, count, group), xs = load_rows(x + at, columns, count, group);
        const auto is_open = load_gates(gate, way, xs, center, at, columns, count, group);
        for (int u = 0; u < group; ++u)
          for (int j = 0; j < count; ++j) {
            const C g = is_open(u, j) ? dys[u][j] : C{0};
            sum[j] += g;
            products[j] += g * (xs[u][j] - center[j]);
          }
      });
      for (int j = 0; j < count; ++j) {
        sum_g[chunk * columns + c + j] = sum[j];
        sum_gx[chunk * columns + c + j] = products[j];
      }
    });
    add_columns(team, table, chunk, sum_g);
    add_columns(team, table, chunk, sum_gx);
  }
};

/// One block of channels per team: dbeta and dgamma from the sums of the chunks.
template <class C> struct MergeGradSums {
  PixelTable table;
  const C* sum_g;  // [chunks, columns], of which [chunks, channels] is read
  const C* sum_gx;
  const C* rstd;
  C* dbeta;
  C* dgamma;

  template <class Team> AB_HD void operator()(const Team& team, std::int64_t block) const {
    constexpr int width = kLaneWidth<Team, C>;
    const std::int64_t columns = table.columns();
    with_block<C, Team>(
        table.channels, block, packable<width>(columns, sum_g, sum_gx), [&](std::int64_t c, auto count) {
          C sums[2 * width] = {};  // of g, then of g (x − mean)
          for (std::int64_t i = team.lane(); i < table.chunks(); i += team.size()) {
            const auto gs = load(sum_g + i * columns + c, count), gxs = load(sum_gx + i * columns + c, count);
            for (int j = 0; j < count; ++j) {
              sums[j] += gs[j];
              sums[width + j] += gxs[j];
            }
          }
          team.sum_each(sums);
          if (team.lane() != 0) return;
          for (int j = 0; j < count; ++j) {
            dbeta[c + j] = sums[j];
            dgamma[c + j] = sums[width + j] * rstd[c + j];
          }
        });
  }
};

/// dx = gamma · rstd · (g − dbeta / N − (x − mean) · rstd · dgamma / N) and, where asked for, dresidual = g; one
/// chunk per team.
template <class T, ReluGate kGate> struct NormaliseBackward {
  using C = compute_t<T>;
  PixelTable table;
  const T* dy;
  const T* x;
  GateOf<T, kGate> gate;
  const C* mean;
  const C* rstd;
  const C* gamma;
  const C* dbeta;  // of all N pixels, like dgamma
  const C* dgamma;
  C per_pixel;  // 1 / N when the moments came from batches, 0 when they were constants
  T* dx;
  T* dresidual;

  template <class Team>
  requires Meets<Team, kGate> AB_HD void operator()(const Team& team, std::int64_t chunk) const {
    constexpr int width = kLaneWidth<Team, T>;
    const std::int64_t columns = table.columns();
    const ChunkRows rows = table.rows_of(chunk);
    const bool packed = packable<width>(columns, dy, x, gate.y, dx, dresidual);
    for_each_block<width>(team, columns, packed, [&](std::int64_t c, auto count) {
      C center[width], scale[width], offset[width], slope[width], weight[width];
      load_of_channels(center, mean, table.channels, c, count);
      load_of_channels(scale, rstd, table.channels, c, count);
      load_of_channels(offset, dbeta, table.channels, c, count);
      load_of_channels(slope, dgamma, table.channels, c, count);
      load_of_channels(weight, gamma, table.channels, c, count);
      for (int j = 0; j < count; ++j) {
        offset[j] *= per_pixel;
        slope[j] *= scale[j] * per_pixel;
        scale[j] *= weight[j];
      }
      const WayToResult<T, kGate, width> way(gate, table.channels, c, count);
      for_each_row_group<Team, 2>(rows, [&](std::int64_t row, auto group) {
        const std::int64_t at = row * columns + c;
        const auto dys = load_rows(dy + at, columns, count, group), xs = load_rows(x + at, columns, count, group);
        const auto is_open = load_gates(gate, way, xs, center, at, columns, count, group);
        for (int u = 0; u < group; ++u) {
          const auto g = [&](int j) { return is_open(u, j) ? dys[u][j] : C{0}; };
          Store dxs(dx + at + u * columns, count);
          for (int j = 0; j < count; ++j)
            dxs[j] = static_cast<T>(scale[j] * (g(j) - (offset[j] + (xs[u][j] - center[j]) * slope[j])));
          if (dresidual == nullptr) continue;  // it may lie where dy did, and dx then does not
          Store dresiduals(dresidual + at + u * columns, count);
          for (int j = 0; j < count; ++j) dresiduals[j] = static_cast<T>(g(j));
        }
      });
    });
  }
};

// The statistics of a batch: those of chunks of pixels, which are merged (Chan et al. 1979), unless a convolution has brought Σ x and
// Σ x². Ranks that share statistics add up those sums in float64.

/// Per chunk and channel: mean and M2 = Σ (x − mean)². Columns are summed with each value shifted by the first,
/// which keeps the subtraction of squares harmless in a single pass.
template <class T> struct ChunkMoments {
  using C = compute_t<T>;
  PixelTable table;
  const T* x;
  C* mean;  // [chunks, columns], of which [chunks, channels] is the result
  C* m2;

  template <class Team> AB_HD void operator()(const Team& team, std::int64_t chunk) const {
    constexpr int width = kLaneWidth<Team, T>;
    const std::int64_t columns = table.columns();
    const ChunkRows rows = table.rows_of(chunk);
    for_each_block<width>(team, columns, packable<width>(columns, x), [&](std::int64_t c, auto count) {
      C shift[width], sum[width] = {}, squares[width] = {};
      const auto first = load(x + rows.at(0) * columns + c, count);
      for (int j = 0; j < count; ++j) shift[j] = first[j];
      for_each_row_group_from_last<Team, 1>(rows, [&](std::int64_t row, auto group) {
        const auto xs = load_rows(x + row * columns + c, columns, count, group);
        for (int u = 0; u < group; ++u)
          for (int j = 0; j < count; ++j) {
            const C d = xs[u][j] - shift[j];
            sum[j] += d;
            squares[j] += d * d;
          }
      });
      const C inverse = C{1} / static_cast<C>(rows.count);
      for (int j = 0; j < count; ++j) {
        const C spread = squares[j] - sum[j] * sum[j] * inverse;
        mean[chunk * columns + c + j] = shift[j] + sum[j] * inverse;
        m2[chunk * columns + c + j] = spread < 0 ? C{0} : spread;
      }
    });
    merge_columns(team, table, [&](std::int64_t c, std::int64_t first, std::int64_t last, std::int64_t span) {
      C* const means = mean + chunk * columns + c;
      C* const spreads = m2 + chunk * columns + c;
      const auto size = [&](std::int64_t s) { return static_cast<C>(last - s < span ? last - s : span); };
      C center{}, spread{};
      for (std::int64_t s = first; s < last; s += span) center += size(s) * means[s * table.channels];
      center /= static_cast<C>(last - first);
      for (std::int64_t s = first; s < last; s += span) {
        const C d = means[s * table.channels] - center;
        spread += spreads[s * table.channels] + size(s) * static_cast<C>(rows.count) * d * d;
      }
      means[first * table.channels] = center;
      spreads[first * table.channels] = spread;
    });
  }
};

/// A channel's mean and M2 become what it is normalised with, and move its running statistics.
template <class C> struct SetMoments {
  C pixels;  // that the moments are of, on all ranks
  C* mean;
  C* rstd;
  C* running_mean;
  C* running_var;
  C epsilon, momentum;

  AB_HD void operator()(std::int64_t c, C center, C m2) const {
    mean[c] = center;
    rstd[c] = C{1} / std::sqrt(m2 / pixels + epsilon);
    running_mean[c] += momentum * (center - running_mean[c]);
    running_var[c] += momentum * (m2 / (pixels - 1) - running_var[c]);
  }
};

/// A channel's mean and M2 become this rank's part of sums over ranks.
template <class C> struct SetSums {
  double pixels;        // on this rank
  double* sum;          // Σ x, per channel
  double* sum_squares;  // Σ x²

  AB_HD void operator()(std::int64_t c, C center, C m2) const {
    const double mean = static_cast<double>(center);
    sum[c] = pixels * mean;
    sum_squares[c] = static_cast<double>(m2) + pixels * mean * mean;
  }
};

/// The reverse, channel by channel: Σ x and Σ x² of all ranks, or of a convolution, become what SetMoments takes.
template <class C, class Sum> struct MomentsOfSums {
  double pixels;  // that the sums are of
  const Sum* sum;
  const Sum* sum_squares;
  SetMoments<C> set;

  AB_HD void operator()(std::int64_t c) const {
    const double mean = sum[c] / pixels, m2 = sum_squares[c] - sum[c] * mean;
    set(c, static_cast<C>(mean), m2 < 0 ? C{0} : static_cast<C>(m2));
  }
};

/// One block of channels per team: merges the chunks; `set` (SetMoments or SetSums) takes the result.
template <class C, class Set> struct MergeMoments {
  PixelTable table;
  const C* chunk_mean;  // [chunks, columns], of which [chunks, channels] is read
  const C* chunk_m2;
  Set set;

  template <class Team> AB_HD void operator()(const Team& team, std::int64_t block) const {
    constexpr int width = kLaneWidth<Team, C>;
    const std::int64_t columns = table.columns();
    const bool packed = packable<width>(columns, chunk_mean, chunk_m2);
    with_block<C, Team>(table.channels, block, packed, [&](std::int64_t c, auto count) {
      C center[width] = {}, m2[width] = {};
      for (std::int64_t i = team.lane(); i < table.chunks(); i += team.size()) {
        const C share = static_cast<C>(table.pixels_in(i)) / static_cast<C>(table.pixels);
        const auto means = load(chunk_mean + i * columns + c, count);
        for (int j = 0; j < count; ++j) center[j] += share * means[j];
      }
      team.sum_each(center);
      for (std::int64_t i = team.lane(); i < table.chunks(); i += team.size()) {
        const C size = static_cast<C>(table.pixels_in(i));
        const auto means = load(chunk_mean + i * columns + c, count);
        const auto spreads = load(chunk_m2 + i * columns + c, count);
        for (int j = 0; j < count; ++j) {
          const C d = means[j] - center[j];
          m2[j] += spreads[j] + size * d * d;
        }
      }
      team.sum_each(m2);
      if (team.lane() != 0) return;
      for (int j = 0; j < count; ++j) set(c + j, center[j], m2[j]);
    });
  }
};

template <class C> struct RunningRstd {
  const C* running_var;
  C* rstd;
  C epsilon;
  AB_HD void operator()(std::int64_t c) const { rstd[c] = C{1} / std::sqrt(running_var[c] + epsilon); }
};

}  // namespace ab::kernels
