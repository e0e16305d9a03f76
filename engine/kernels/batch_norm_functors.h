#pragma once
// SPDX-License-Identifier: MIT
//
// The kernels of batch_norm.h: one normalises, the others go backward, for the sums that are dbeta and dgamma, then dx and
// dresidual. In these g = dy where y > 0, or dy without a ReLU.

#include "engine/core/dtype.h"
#include "engine/kernels/pixel_table.h"
#include "engine/kernels/relu_gate.h"

namespace ab::kernels {

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

  template <class Team> AB_HD void operator()(const Team& team, std::int64_t chunk) const {
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
          StoredBits<T, kGate, width> ys_above_zero(bits, at + u * columns, count);
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

  template <class Team> AB_HD void operator()(const Team& team, std::int64_t chunk) const {
    constexpr int width = kLaneWidth<Team, T>;
    const std::int64_t columns = table.columns();
    const ChunkRows rows = table.rows_of(chunk);
    for_each_block<width>(team, columns, packable<width>(columns, dy, x, gate.y), [&](std::int64_t c, auto count) {
      C center[width], sum[width] = {}, products[width] = {};
      load_of_channels(center, mean, table.channels, c, count);
      for_each_row_group_from_last<Team, 2>(rows, [&](std::int64_t row, auto group) {
        const std::int64_t at = row * columns + c;
        const auto dys = load_rows(dy + at, columns, count, group), xs = load_rows(x + at, columns, count, group);
        const auto is_open = load_gates(gate, at, columns, count, group);
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
    merge_columns(team, table, [&](std::int64_t c, std::int64_t first, std::int64_t last, std::int64_t span) {
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
template <class T, ReluGate kGate, bool kResidual> struct NormaliseBackward {
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

  template <class Team> AB_HD void operator()(const Team& team, std::int64_t chunk) const {
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
      for_each_row_group<Team, 2>(rows, [&](std::int64_t row, auto group) {
        const std::int64_t at = row * columns + c;
        const auto dys = load_rows(dy + at, columns, count, group), xs = load_rows(x + at, columns, count, group);
        const auto is_open = load_gates(gate, at, columns, count, group);
        for (int u = 0; u < group; ++u) {
          const auto write = [&](auto& dxs, auto&... dresiduals) {
            for (int j = 0; j < count; ++j) {
              const C g = is_open(u, j) ? dys[u][j] : C{0};
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
