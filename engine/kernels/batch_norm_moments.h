#pragma once
// SPDX-License-Identifier: MIT
//
// Kernels of batch_norm.h that take the statistics of a batch: those of chunks of pixels, which are merged (Chan et
// al. 1979), unless a convolution has brought Σ x and Σ x². Ranks that share statistics add up those sums in float64.

#include <cmath>

#include "engine/core/dtype.h"
#include "engine/kernels/pixel_table.h"

namespace ab::kernels {

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
