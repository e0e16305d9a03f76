#pragma once
// SPDX-License-Identifier: MIT
//
// The kernel of batch_norm.h that normalises.

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

}  // namespace ab::kernels
