#pragma once
// SPDX-License-Identifier: MIT
//
// Layer normalisation over the last dimension (Ba et al. 2016).   x: [rows, C], gamma, beta: [C]
//   mean = Σ x / C,  var = Σ (x − mean)² / C,  rstd = 1 / sqrt(var + eps)      of each row
//   y = gamma · xhat + beta,  xhat = (x − mean) · rstd
// With h = gamma · dy and means over the C values of a row:
//   dx = rstd · (h − mean(h) − xhat · mean(h · xhat))
//   dgamma = Σ dy · xhat,  dbeta = Σ dy      over the rows

#include <cmath>

#include "engine/core/tensor.h"
#include "engine/kernels/lanes.h"
#include "engine/kernels/reduce_functors.h"

namespace ab {

struct LayerNormResult {
  Tensor y;
  Tensor mean, rstd;  ///< [rows], computing type: what the backward pass needs besides x
};
/// gamma, beta: [C] of the computing type.
LayerNormResult layer_norm_forward(const Tensor& x, const Tensor& gamma, const Tensor& beta, double epsilon);

/// dx + addend, of which the latter may be undefined.
Tensor layer_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& mean, const Tensor& rstd,
                           const Tensor& gamma, const Tensor& addend = {});

struct AffineGrads {
  Tensor dgamma, dbeta;  ///< [C] of the computing type
};
AffineGrads layer_norm_affine_backward(const Tensor& dy, const Tensor& x, const Tensor& mean, const Tensor& rstd);

namespace kernels {

/// One row per team; the mean first, then the squares around it.
template <class T> struct LayerNorm {
  using C = compute_t<T>;
  const T* x;
  const C* gamma;
  const C* beta;
  T* y;
  C* mean;
  C* rstd;
  std::int64_t channels;
  C epsilon;

  template <class Team> AB_HD void operator()(const Team& team, std::int64_t row) const {
    const T* from = x + row * channels;
    T* to = y + row * channels;
    const auto n = static_cast<C>(channels);
    const C center = lane_sum<C>(
                         team, channels, [](C v) { return v; }, from) /
                     n;
    const C m2 = lane_sum<C>(
        team, channels, [=](C v) { return (v - center) * (v - center); }, from);
    const C inverse = C{1} / std::sqrt(m2 / n + epsilon);
    lane_map(
        team, channels, to, [=](C v, C g, C b) { return (v - center) * inverse * g + b; }, from, gamma, beta);
    if (team.lane() == 0) {
      mean[row] = center;
      rstd[row] = inverse;
    }
  }
};

template <class T> struct LayerNormBackward {
  using C = compute_t<T>;
  const T* dy;
  const T* x;
  const C* mean;
  const C* rstd;
  const C* gamma;
  const T* addend;  // may be null
  T* dx;
  std::int64_t channels;

  template <class Team> AB_HD void operator()(const Team& team, std::int64_t row) const {
    const T* dy_row = dy + row * channels;
    const T* x_row = x + row * channels;
    const C center = mean[row], inverse = rstd[row];
    const auto n = static_cast<C>(channels);
    const C mean_h = lane_sum<C>(
                         team, channels, [](C g, C weight) { return g * weight; }, dy_row, gamma) /
                     n;
    const auto hx = [=](C g, C v, C weight) { return g * weight * (v - center) * inverse; };
    const C mean_hx = lane_sum<C>(team, channels, hx, dy_row, x_row, gamma) / n;
    const auto gradient = [=](C g, C v, C weight) {
      return inverse * (g * weight - mean_h - (v - center) * inverse * mean_hx);
    };
    T* const to = dx + row * channels;
    if (!addend) return lane_map(team, channels, to, gradient, dy_row, x_row, gamma);
    lane_map(
        team, channels, to, [=](C g, C v, C weight, C a) { return gradient(g, v, weight) + a; }, dy_row, x_row, gamma,
        addend + row * channels);
  }
};

/// Per chunk of pixels (the rows of layer_norm) and channel: Σ dy and Σ dy · xhat.
template <class T> struct LayerNormChunkGradSums {
  using C = compute_t<T>;
  PixelTable table;
  const T* dy;
  const T* x;
  const C* mean;
  const C* rstd;
  C* sum_dy;  // [chunks, columns], of which [chunks, channels] is the result
  C* sum_dyhat;

  template <class Team> AB_HD void operator()(const Team& team, std::int64_t chunk) const {
    constexpr int width = kLaneWidth<Team, T>;
    const std::int64_t columns = table.columns();
    const ChunkRows rows = table.rows_of(chunk);
    // A block lies within one pixel: on a CPU pixels do not share a row, on a GPU Packs do not cross channels.
    const bool packed = packable<width>(table.channels, dy, x);
    for_each_block<width>(team, columns, packed, [&](std::int64_t c, auto count) {
      C sum[width] = {}, products[width] = {};
      const std::int64_t in_row = c / table.channels;
      for_each_row_group_from_last<Team, 2>(rows, [&](std::int64_t row, auto group) {
        const std::int64_t at = row * columns + c;
        const auto dys = load_rows(dy + at, columns, count, group), xs = load_rows(x + at, columns, count, group);
        for (int u = 0; u < group; ++u) {
          const std::int64_t pixel = (row + u) * table.pixels_per_row + in_row;
          const C center = mean[pixel], inverse = rstd[pixel];
          for (int j = 0; j < count; ++j) {
            const C g = dys[u][j];
            sum[j] += g;
            products[j] += g * ((xs[u][j] - center) * inverse);
          }
        }
      });
      for (int j = 0; j < count; ++j) {
        sum_dy[chunk * columns + c + j] = sum[j];
        sum_dyhat[chunk * columns + c + j] = products[j];
      }
    });
    add_columns(team, table, chunk, sum_dy);
    add_columns(team, table, chunk, sum_dyhat);
  }
};

}  // namespace kernels
}  // namespace ab
