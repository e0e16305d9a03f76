#pragma once
// SPDX-License-Identifier: MIT
//
// The kernels of batch_norm.h. Statistics are taken per chunk of pixels and merged (Chan et al. 1979); the
// chunks depend on the shape and the device alone, so that the result does not depend on the number of
// threads. Ranks that share statistics add up Σ x and Σ x² in float64 between the merge and what is done with
// its result.

#include <cmath>

#include "engine/core/dtype.h"
#include "engine/kernels/lanes.h"

namespace ab::kernels {

/// Activations [pixels, channels] seen as a table in which `fold` neighbouring pixels share a row, so that a
/// row fills vector registers or a team even with few channels. A chunk is a range of rows; its partial
/// results per column, [chunks, fold · channels], are those of chunks · fold strands of pixels per channel.
struct PixelTable {
  std::int64_t pixels = 0, channels = 0;
  std::int64_t fold = 1, chunk_rows = 1;

  AB_HD std::int64_t rows() const { return pixels / fold; }
  AB_HD std::int64_t columns() const { return fold * channels; }
  AB_HD std::int64_t chunks() const { return (rows() + chunk_rows - 1) / chunk_rows; }
  AB_HD std::int64_t strands() const { return chunks() * fold; }
  AB_HD std::int64_t first_row(std::int64_t chunk) const { return chunk * chunk_rows; }
  AB_HD std::int64_t rows_in(std::int64_t chunk) const {
    const std::int64_t left = rows() - first_row(chunk);
    return left < chunk_rows ? left : chunk_rows;
  }
};

/// Per chunk and column: mean and M2 = Σ (x − mean)², from sums shifted by the chunk's first value, which
/// keeps the subtraction of squares harmless in a single pass.
template <class T> struct ChunkMoments {
  using C = compute_t<T>;
  PixelTable table;
  const T* x;
  C* mean;  // [chunks, columns]
  C* m2;    // [chunks, columns]

  template <class Team> AB_HD void operator()(const Team& team, std::int64_t chunk) const {
    const std::int64_t columns = table.columns(), rows = table.rows_in(chunk);
    for_each_block(team, columns, [&](std::int64_t c, auto count) {
      const T* row = x + table.first_row(chunk) * columns + c;
      C shift[kLaneWidth<Team>], sum[kLaneWidth<Team>] = {}, squares[kLaneWidth<Team>] = {};
      for (int j = 0; j < count; ++j) shift[j] = static_cast<C>(row[j]);
      for (std::int64_t r = 0; r < rows; ++r, row += columns)
        for (int j = 0; j < count; ++j) {
          const C d = static_cast<C>(row[j]) - shift[j];
          sum[j] += d;
          squares[j] += d * d;
        }
      const C inverse = C{1} / static_cast<C>(rows);
      for (int j = 0; j < count; ++j) {
        const C spread = squares[j] - sum[j] * sum[j] * inverse;
        mean[chunk * columns + c + j] = shift[j] + sum[j] * inverse;
        m2[chunk * columns + c + j] = spread < 0 ? C{0} : spread;
      }
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

/// One block of channels per team: merges the strands; `set` (SetMoments or SetSums) takes the result.
template <class C, class Set> struct MergeMoments {
  PixelTable table;
  const C* strand_mean;  // [strands, channels]
  const C* strand_m2;    // [strands, channels]
  Set set;

  template <class Team> AB_HD void operator()(const Team& team, std::int64_t block) const {
    with_block<Team>(table.channels, block, [&](std::int64_t c, auto count) {
      C center[kLaneWidth<Team>] = {}, m2[kLaneWidth<Team>] = {};
      for (std::int64_t i = team.lane(); i < table.strands(); i += team.size()) {
        const C share = static_cast<C>(table.rows_in(i / table.fold)) / static_cast<C>(table.pixels);
        for (int j = 0; j < count; ++j) center[j] += share * strand_mean[i * table.channels + c + j];
      }
      for (int j = 0; j < count; ++j) center[j] = team.sum(center[j]);
      for (std::int64_t i = team.lane(); i < table.strands(); i += team.size()) {
        const C size = static_cast<C>(table.rows_in(i / table.fold));
        for (int j = 0; j < count; ++j) {
          const C d = strand_mean[i * table.channels + c + j] - center[j];
          m2[j] += strand_m2[i * table.channels + c + j] + size * d * d;
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

/// per_column[column] = per_channel[column's channel]
template <class C> struct RepeatChannels {
  std::int64_t channels;
  const C* per_channel;
  C* per_column;
  AB_HD void operator()(std::int64_t column) const { per_column[column] = per_channel[column % channels]; }
};

/// Per column of the table, what Normalise needs of the column's channel.
template <class C> struct ForwardCoefficients {
  std::int64_t channels;
  const C* mean;
  const C* rstd;
  const C* gamma;
  const C* beta;
  C* center;  // mean
  C* scale;   // gamma · rstd
  C* offset;  // beta

  AB_HD void operator()(std::int64_t column) const {
    const std::int64_t c = column % channels;
    center[column] = mean[c];
    scale[column] = gamma[c] * rstd[c];
    offset[column] = beta[c];
  }
};

/// y = act((x − center) · scale + offset [+ residual]), one chunk per team.
template <class T, bool kRelu, bool kResidual> struct Normalise {
  using C = compute_t<T>;
  PixelTable table;
  const T* x;
  const T* residual;
  const C* center;
  const C* scale;
  const C* offset;
  T* y;

  template <class Team> AB_HD void operator()(const Team& team, std::int64_t chunk) const {
    const std::int64_t columns = table.columns(), first = table.first_row(chunk), rows = table.rows_in(chunk);
    for (std::int64_t r = 0; r < rows; ++r)
      for_each_block(team, columns, [&](std::int64_t c, auto count) {
        const std::int64_t at = (first + r) * columns + c;
        for (int j = 0; j < count; ++j) {
          C v = (static_cast<C>(x[at + j]) - center[c + j]) * scale[c + j] + offset[c + j];
          if constexpr (kResidual) v += static_cast<C>(residual[at + j]);
          if constexpr (kRelu) v = v < 0 ? C{0} : v;
          y[at + j] = static_cast<T>(v);
        }
      });
  }
};

/// Per chunk and column: Σ g and Σ g (x − mean).
template <class T, bool kRelu> struct ChunkGradSums {
  using C = compute_t<T>;
  PixelTable table;
  const T* dy;
  const T* x;
  const T* y;
  const C* center;  // mean, per column
  C* sum_g;         // [chunks, columns]
  C* sum_gx;        // [chunks, columns]

  template <class Team> AB_HD void operator()(const Team& team, std::int64_t chunk) const {
    const std::int64_t columns = table.columns(), rows = table.rows_in(chunk);
    for_each_block(team, columns, [&](std::int64_t c, auto count) {
      C shift[kLaneWidth<Team>], sum[kLaneWidth<Team>] = {}, products[kLaneWidth<Team>] = {};
      for (int j = 0; j < count; ++j) shift[j] = center[c + j];
      std::int64_t at = table.first_row(chunk) * columns + c;
      for (std::int64_t r = 0; r < rows; ++r, at += columns)
        for (int j = 0; j < count; ++j) {
          C g = static_cast<C>(dy[at + j]);
          if constexpr (kRelu) g = static_cast<C>(y[at + j]) > 0 ? g : C{0};
          sum[j] += g;
          products[j] += g * (static_cast<C>(x[at + j]) - shift[j]);
        }
      for (int j = 0; j < count; ++j) {
        sum_g[chunk * columns + c + j] = sum[j];
        sum_gx[chunk * columns + c + j] = products[j];
      }
    });
  }
};

/// One block of channels per team: dbeta and dgamma from the sums of the strands.
template <class C> struct MergeGradSums {
  PixelTable table;
  const C* sum_g;   // [strands, channels]
  const C* sum_gx;  // [strands, channels]
  const C* rstd;
  C* dbeta;
  C* dgamma;

  template <class Team> AB_HD void operator()(const Team& team, std::int64_t block) const {
    with_block<Team>(table.channels, block, [&](std::int64_t c, auto count) {
      C g[kLaneWidth<Team>] = {}, gx[kLaneWidth<Team>] = {};
      for (std::int64_t i = team.lane(); i < table.strands(); i += team.size())
        for (int j = 0; j < count; ++j) {
          g[j] += sum_g[i * table.channels + c + j];
          gx[j] += sum_gx[i * table.channels + c + j];
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

/// Per column of the table, what NormaliseBackward needs of the column's channel. `per_pixel` is 1 / N when
/// the moments came from batches and 0 when they were constants; dgamma and dbeta are those of all N pixels.
template <class C> struct BackwardCoefficients {
  std::int64_t channels;
  C per_pixel;
  const C* rstd;
  const C* gamma;
  const C* dgamma;
  const C* dbeta;
  C* scale;   // gamma · rstd
  C* offset;  // dbeta / N
  C* slope;   // rstd · dgamma / N

  AB_HD void operator()(std::int64_t column) const {
    const std::int64_t c = column % channels;
    scale[column] = gamma[c] * rstd[c];
    offset[column] = dbeta[c] * per_pixel;
    slope[column] = rstd[c] * dgamma[c] * per_pixel;
  }
};

/// dx = scale · (g − offset − (x − center) · slope) and, where asked for, dresidual = g; one chunk per team.
template <class T, bool kRelu, bool kResidual> struct NormaliseBackward {
  using C = compute_t<T>;
  PixelTable table;
  const T* dy;
  const T* x;
  const T* y;
  const C* center;
  const C* scale;
  const C* offset;
  const C* slope;
  T* dx;
  T* dresidual;

  template <class Team> AB_HD void operator()(const Team& team, std::int64_t chunk) const {
    const std::int64_t columns = table.columns(), first = table.first_row(chunk), rows = table.rows_in(chunk);
    for (std::int64_t r = 0; r < rows; ++r)
      for_each_block(team, columns, [&](std::int64_t c, auto count) {
        const std::int64_t at = (first + r) * columns + c;
        for (int j = 0; j < count; ++j) {
          C g = static_cast<C>(dy[at + j]);
          if constexpr (kRelu) g = static_cast<C>(y[at + j]) > 0 ? g : C{0};
          const C through_moments =
              offset[c + j] + (static_cast<C>(x[at + j]) - center[c + j]) * slope[c + j];
          dx[at + j] = static_cast<T>(scale[c + j] * (g - through_moments));
          if constexpr (kResidual) dresidual[at + j] = static_cast<T>(g);
        }
      });
  }
};

}  // namespace ab::kernels
