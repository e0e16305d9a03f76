#pragma once
// SPDX-License-Identifier: MIT
//
// The kernels of batch_norm.h. Statistics are taken per chunk of pixels and merged (Chan et al. 1979); the
// chunks depend on the shape and the device alone, so that the result does not depend on the number of
// threads. Ranks that share statistics add up Σ x and Σ x² in float64 between the merge and what is done with
// its result.

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/core/dtype.h"
#include "engine/kernels/lanes.h"

namespace ab::kernels {

/// Activations [pixels, channels] seen as a table in which `fold` neighbouring pixels share a row, so that a row
/// fills the lanes of a team even with few channels. A chunk is a range of rows. A column of it is a strand of
/// pixels of one channel; the partial results of a chunk, [columns], become those of its pixels, [channels].
struct PixelTable {
  std::int64_t pixels = 0, channels = 0;
  std::int64_t fold = 1, chunk_rows = 1;

  AB_HD std::int64_t rows() const { return pixels / fold; }
  AB_HD std::int64_t columns() const { return fold * channels; }
  AB_HD std::int64_t chunks() const { return (rows() + chunk_rows - 1) / chunk_rows; }
  AB_HD std::int64_t first_row(std::int64_t chunk) const { return chunk * chunk_rows; }
  AB_HD std::int64_t rows_in(std::int64_t chunk) const {
    const std::int64_t left = rows() - first_row(chunk);
    return left < chunk_rows ? left : chunk_rows;
  }
  AB_HD std::int64_t pixels_in(std::int64_t chunk) const { return rows_in(chunk) * fold; }
};

/// A table whose rows are whole blocks of `width` elements, if the number of pixels allows it, and at most
/// `columns` elements long, if one block is not longer.
inline PixelTable pixel_table(std::int64_t pixels, std::int64_t channels, std::int64_t width, std::int64_t columns) {
  const std::int64_t unit = width / std::gcd(width, channels);
  std::int64_t fold = std::max<std::int64_t>(1, columns / (unit * channels)) * unit;
  while (fold > unit && pixels % fold != 0) fold -= unit;
  return {.pixels = pixels, .channels = channels, .fold = pixels % fold == 0 ? fold : 1};
}
/// Chunks fit the second-level cache.
inline PixelTable cpu_pixel_table(std::int64_t pixels, std::int64_t channels) {
  constexpr std::int64_t width = kLaneWidth<SerialTeam>, chunk_elements = 16384;
  PixelTable table = pixel_table(pixels, channels, width, width);
  table.chunk_rows = std::max<std::int64_t>(16, chunk_elements / table.columns());
  return table;
}
/// A row has a Pack of `width` elements for each of 256 lanes. There are chunks for four such teams on each of 132
/// multiprocessors, unless they would have too few rows to be worth their partial results.
inline PixelTable gpu_pixel_table(std::int64_t pixels, std::int64_t channels, std::int64_t width) {
  constexpr std::int64_t lanes = 256, most_chunks = 528, group = 4;
  PixelTable table = pixel_table(pixels, channels, width, width * lanes);
  const std::int64_t groups = (table.rows() + most_chunks * group - 1) / (most_chunks * group);
  table.chunk_rows = std::max<std::int64_t>(2, groups) * group;
  return table;
}

/// values[j] = per_channel[channel of column + j]
template <class C, class Count>
AB_HD void load_of_channels(C* values, const C* per_channel, std::int64_t channels, std::int64_t column, Count count) {
  std::int64_t c = column % channels;
  for (int done = 0; done < count; c = 0) {
    const int run = channels - c < count - done ? static_cast<int>(channels - c) : count - done;
    for (int j = 0; j < run; ++j) values[done + j] = per_channel[c + j];
    done += run;
  }
}
template <class C>
AB_HD void load_of_channels(C* values, const C* per_channel, std::int64_t channels, std::int64_t column,
                            std::integral_constant<int, 1>) {
  values[0] = per_channel[column % channels];
}
template <class C, int N>
AB_HD void load_of_channels(C* values, const C* per_channel, std::int64_t channels, std::int64_t column,
                            Packed<N> count) {
  std::int64_t c = column % channels;
  if (packable<N>(channels, per_channel)) {
    const auto loaded = load(per_channel + c, count);
    for (int j = 0; j < N; ++j) values[j] = loaded[j];
  } else {
    for (int j = 0; j < N; ++j, c = c + 1 < channels ? c + 1 : 0) values[j] = per_channel[c];
  }
}

/// How many strands become one at a time: few rounds, and still work for many lanes.
inline constexpr std::int64_t kMergedStrands = 16;

/// Merges the strands of a chunk in place: strand 0 of each channel becomes that of all its pixels.
/// merge(c, first, last, span) puts strands first, first + span, … of channel c into the first of them. Each
/// stands for `span` strands, but for the last, which ends at `last`.
template <class Team, class Merge>
AB_HD void merge_strands(const Team& team, const PixelTable& table, const Merge& merge) {
  for (std::int64_t span = 1; span < table.fold; span *= kMergedStrands) {
    team.barrier();
    const std::int64_t step = span * kMergedStrands, groups = (table.fold + step - 1) / step;
    for (std::int64_t i = team.lane(); i < groups * table.channels; i += team.size()) {
      const std::int64_t first = i / table.channels * step, last = first + step;
      merge(i % table.channels, first, last < table.fold ? last : table.fold, span);
    }
  }
}

/// Per chunk and channel: mean and M2 = Σ (x − mean)². Strands are summed with each value shifted by the first,
/// which keeps the subtraction of squares harmless in a single pass.
template <class T> struct ChunkMoments {
  using C = compute_t<T>;
  PixelTable table;
  const T* x;
  C* mean;  // [chunks, columns], of which [chunks, channels] is the result
  C* m2;

  template <class Team> AB_HD void operator()(const Team& team, std::int64_t chunk) const {
    constexpr int width = kLaneWidth<Team, T>;
    const std::int64_t columns = table.columns(), rows = table.rows_in(chunk);
    for_each_block<width>(team, columns, packable<width>(columns, x), [&](std::int64_t c, auto count) {
      const T* top = x + table.first_row(chunk) * columns + c;
      C shift[width], sum[width] = {}, squares[width] = {};
      const auto first = load(top, count);
      for (int j = 0; j < count; ++j) shift[j] = first[j];
      for_each_row_group<Team>(rows, [&](std::int64_t r, auto group) {
        const auto xs = load_rows(top + r * columns, columns, count, group);
        for (int u = 0; u < group; ++u)
          for (int j = 0; j < count; ++j) {
            const C d = xs[u][j] - shift[j];
            sum[j] += d;
            squares[j] += d * d;
          }
      });
      const C inverse = C{1} / static_cast<C>(rows);
      for (int j = 0; j < count; ++j) {
        const C spread = squares[j] - sum[j] * sum[j] * inverse;
        mean[chunk * columns + c + j] = shift[j] + sum[j] * inverse;
        m2[chunk * columns + c + j] = spread < 0 ? C{0} : spread;
      }
    });
    merge_strands(team, table, [&](std::int64_t c, std::int64_t first, std::int64_t last, std::int64_t span) {
      C* const means = mean + chunk * columns + c;
      C* const spreads = m2 + chunk * columns + c;
      const auto size = [&](std::int64_t s) { return static_cast<C>(last - s < span ? last - s : span); };
      C center{}, spread{};
      for (std::int64_t s = first; s < last; s += span) center += size(s) * means[s * table.channels];
      center /= static_cast<C>(last - first);
      for (std::int64_t s = first; s < last; s += span) {
        const C d = means[s * table.channels] - center;
        spread += spreads[s * table.channels] + size(s) * static_cast<C>(rows) * d * d;
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

/// The way back, with the sums of all ranks, channel by channel.
template <class C> struct MomentsOfSums {
  double pixels;  // on all ranks
  const double* sum;
  const double* sum_squares;
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
      for (int j = 0; j < count; ++j) center[j] = team.sum(center[j]);
      for (std::int64_t i = team.lane(); i < table.chunks(); i += team.size()) {
        const C size = static_cast<C>(table.pixels_in(i));
        const auto means = load(chunk_mean + i * columns + c, count);
        const auto spreads = load(chunk_m2 + i * columns + c, count);
        for (int j = 0; j < count; ++j) {
          const C d = means[j] - center[j];
          m2[j] += spreads[j] + size * d * d;
        }
      }
      for (int j = 0; j < count; ++j) m2[j] = team.sum(m2[j]);
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

/// y = act((x − mean) · gamma · rstd + beta [+ residual]), one chunk per team.
template <class T, bool kRelu, bool kResidual> struct Normalise {
  using C = compute_t<T>;
  PixelTable table;
  const T* x;
  const T* residual;
  const C* mean;
  const C* rstd;
  const C* gamma;
  const C* beta;
  T* y;

  template <class Team> AB_HD void operator()(const Team& team, std::int64_t chunk) const {
    constexpr int width = kLaneWidth<Team, T>;
    const std::int64_t columns = table.columns();
    for_each_block<width>(team, columns, packable<width>(columns, x, residual, y), [&](std::int64_t c, auto count) {
      C center[width], scale[width], offset[width], weight[width];
      load_of_channels(center, mean, table.channels, c, count);
      load_of_channels(scale, rstd, table.channels, c, count);
      load_of_channels(weight, gamma, table.channels, c, count);
      load_of_channels(offset, beta, table.channels, c, count);
      for (int j = 0; j < count; ++j) scale[j] *= weight[j];
      for_each_row_group<Team>(table.rows_in(chunk), [&](std::int64_t r, auto group) {
        const std::int64_t at = (table.first_row(chunk) + r) * columns + c;
        const auto xs = load_rows(x + at, columns, count, group);
        const auto residuals = load_rows(kResidual ? residual + at : x + at, columns, count, group);
        for (int u = 0; u < group; ++u) {
          Store ys(y + at + u * columns, count);
          for (int j = 0; j < count; ++j) {
            C v = (xs[u][j] - center[j]) * scale[j] + offset[j];
            if constexpr (kResidual) v += residuals[u][j];
            if constexpr (kRelu) v = v < 0 ? C{0} : v;
            ys[j] = static_cast<T>(v);
          }
        }
      });
    });
  }
};

/// Per chunk and channel: Σ g and Σ g (x − mean).
template <class T, bool kRelu> struct ChunkGradSums {
  using C = compute_t<T>;
  PixelTable table;
  const T* dy;
  const T* x;
  const T* y;
  const C* mean;
  C* sum_g;  // [chunks, columns], of which [chunks, channels] is the result
  C* sum_gx;

  template <class Team> AB_HD void operator()(const Team& team, std::int64_t chunk) const {
    constexpr int width = kLaneWidth<Team, T>;
    const std::int64_t columns = table.columns();
    for_each_block<width>(team, columns, packable<width>(columns, dy, x, y), [&](std::int64_t c, auto count) {
      C center[width], sum[width] = {}, products[width] = {};
      load_of_channels(center, mean, table.channels, c, count);
      for_each_row_group<Team>(table.rows_in(chunk), [&](std::int64_t r, auto group) {
        const std::int64_t at = (table.first_row(chunk) + r) * columns + c;
        const auto dys = load_rows(dy + at, columns, count, group), xs = load_rows(x + at, columns, count, group);
        const auto ys = load_rows(kRelu ? y + at : dy + at, columns, count, group);
        for (int u = 0; u < group; ++u)
          for (int j = 0; j < count; ++j) {
            C g = dys[u][j];
            if constexpr (kRelu) g = ys[u][j] > 0 ? g : C{0};
            sum[j] += g;
            products[j] += g * (xs[u][j] - center[j]);
          }
      });
      for (int j = 0; j < count; ++j) {
        sum_g[chunk * columns + c + j] = sum[j];
        sum_gx[chunk * columns + c + j] = products[j];
      }
    });
    merge_strands(team, table, [&](std::int64_t c, std::int64_t first, std::int64_t last, std::int64_t span) {
      C* const both[] = {sum_g + chunk * columns + c, sum_gx + chunk * columns + c};
      for (C* sums : both) {
        C total{};
        for (std::int64_t s = first; s < last; s += span) total += sums[s * table.channels];
        sums[first * table.channels] = total;
      }
    });
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
    with_block<C, Team>(table.channels, block, packable<width>(columns, sum_g, sum_gx), [&](std::int64_t c, auto count) {
      C g[width] = {}, gx[width] = {};
      for (std::int64_t i = team.lane(); i < table.chunks(); i += team.size()) {
        const auto gs = load(sum_g + i * columns + c, count), gxs = load(sum_gx + i * columns + c, count);
        for (int j = 0; j < count; ++j) {
          g[j] += gs[j];
          gx[j] += gxs[j];
        }
      }
      for (int j = 0; j < count; ++j) {
        g[j] = team.sum(g[j]);
        gx[j] = team.sum(gx[j]);
      }
      if (team.lane() != 0) return;
      for (int j = 0; j < count; ++j) {
        dbeta[c + j] = g[j];
        dgamma[c + j] = gx[j] * rstd[c + j];
      }
    });
  }
};

/// dx = gamma · rstd · (g − dbeta / N − (x − mean) · rstd · dgamma / N) and, where asked for, dresidual = g; one
/// chunk per team.
template <class T, bool kRelu, bool kResidual> struct NormaliseBackward {
  using C = compute_t<T>;
  PixelTable table;
  const T* dy;
  const T* x;
  const T* y;
  const C* mean;
  const C* rstd;
  const C* gamma;
  const C* dbeta;  // of all N pixels, like dgamma
  const C* dgamma;
  C per_pixel;  // 1 / N when the moments came from batches, 0 when they were constants
  T* dx;
  T* dresidual;

  template <class Team> AB_HD void operator()(const Team& team, std::int64_t chunk) const {
    constexpr int width = kLaneWidth<Team, T>;
    const std::int64_t columns = table.columns();
    const bool packed = packable<width>(columns, dy, x, y, dx, dresidual);
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
      for_each_row_group<Team>(table.rows_in(chunk), [&](std::int64_t r, auto group) {
        const std::int64_t at = (table.first_row(chunk) + r) * columns + c;
        const auto dys = load_rows(dy + at, columns, count, group), xs = load_rows(x + at, columns, count, group);
        const auto ys = load_rows(kRelu ? y + at : dy + at, columns, count, group);
        for (int u = 0; u < group; ++u) {
          const auto write = [&](auto& dxs, auto&... dresiduals) {
            for (int j = 0; j < count; ++j) {
              C g = dys[u][j];
              if constexpr (kRelu) g = ys[u][j] > 0 ? g : C{0};
              const C through_moments = offset[j] + (xs[u][j] - center[j]) * slope[j];
              dxs[j] = static_cast<T>(scale[j] * (g - through_moments));
              ((dresiduals[j] = static_cast<T>(g)), ...);
            }
          };
          Store dxs(dx + at + u * columns, count);
          if constexpr (kResidual) {
            Store dresiduals(dresidual + at + u * columns, count);
            write(dxs, dresiduals);
          } else {
            write(dxs);
          }
        }
      });
    });
  }
};

}  // namespace ab::kernels
