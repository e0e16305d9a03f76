#pragma once
// SPDX-License-Identifier: MIT
//
// The passes of engine/backend/low_rank.h as kernels.

#include "engine/core/tensor.h"
#include "engine/kernels/lanes.h"

namespace ab {

/// m = gradient + residual, all float32 and of one size. An undefined gradient counts as zeros.
void add_residual(const Tensor& gradient, const Tensor& residual, const Tensor& m);

struct ScaledRows {
  Tensor rows;  ///< [r, n]
  double scale;
};
/// Of the rows R, which are those of `own`: the directions, rows of length one, in `q`, which stays as it is where all rows vanish;
/// their multiples in `update`, where a row shorter than `noise` times the longest is zero; and in `own` multiples of R.
void split_into_directions(const ScaledRows& own, const ScaledRows& update, double noise, const Tensor& q);

namespace kernels {

/// The length of a row.
struct RowLengths {
  const float* rows;
  float* lengths;
  std::int64_t n;
  template <class Team> AB_HD void operator()(const Team& team, std::int64_t k) const {
    const double squares = lane_sum<double>(
        team, n, [](double v) { return v * v; }, rows + k * n);
    if (team.lane() == 0) lengths[k] = static_cast<float>(sqrt(squares));
  }
};

/// split_into_directions(), a row.
struct SplitIntoDirections {
  const float* lengths;
  float *own, *update, *q;
  std::int64_t r, n;
  float own_scale, update_scale, noise;

  template <class Team> AB_HD void operator()(const Team& team, std::int64_t k) const {
    constexpr float kEpsilon = 1e-8f;
    const float longest = lane_max<float>(
        team, r, 0.0f, [](float v) { return v; }, lengths);
    const float length = lengths[k], to_one = 1 / (length + kEpsilon), to_own = own_scale;
    const float to_update = length < noise * longest ? 0.0f : update_scale * to_one;
    float* const row = own + k * n;
    const auto times = [](float factor) { return [factor](float v) { return v * factor; }; };
    if (longest != 0) lane_map(team, n, q + k * n, times(to_one), static_cast<const float*>(row));
    lane_map(team, n, update + k * n, times(to_update), static_cast<const float*>(row));
    team.barrier();
    lane_map(team, n, row, times(to_own), static_cast<const float*>(row));
  }
};

/// P = Q·Mᵀ and M = G + E, row i of M. `gradient` may be null.
struct AddAndProject {
  const float *gradient, *residual, *q;
  float *m, *p;
  std::int64_t n, columns, r;

  template <class Team> AB_HD void operator()(const Team& team, std::int64_t i) const {
    float* const row = m + i * columns;
    const float* const e = residual + i * columns;
    if (gradient)
      lane_map(
          team, columns, row, [](float g, float v) { return g + v; }, gradient + i * columns, e);
    else
      lane_map(
          team, columns, row, [](float v) { return v; }, e);
    team.barrier();
    for (std::int64_t k = 0; k < r; ++k) {
      const float dot = lane_sum<float>(
          team, columns, [](float a, float b) { return a * b; }, static_cast<const float*>(row), q + k * columns);
      if (team.lane() == 0) p[k * n + i] = dot;
    }
  }
};

/// E = M − P_ownᵀ·Q_own and M = P_meanᵀ·Q_mean, row i of M.
struct SplitOffProjection {
  const float *own_p, *own_q, *mean_p, *mean_q;
  const double* failed;
  float *m, *residual;
  std::int64_t n, columns, r;

  template <class Team> AB_HD void operator()(const Team& team, std::int64_t i) const {
    constexpr int width = kLaneWidth<Team, float>;
    float *const row = m + i * columns, *const rest = residual + i * columns;
    const bool keep = *failed != 0;
    const bool packed = packable<width>(columns, m, residual, own_q, mean_q);
    for_each_block<width>(team, columns, packed, [&](std::int64_t j, auto count) {
      float own[width] = {}, mean[width] = {};
      for (std::int64_t k = 0; k < r; ++k) {
        const float a = own_p[k * n + i], b = mean_p[k * n + i];
        const auto as = load(own_q + k * columns + j, count), bs = load(mean_q + k * columns + j, count);
        for (int l = 0; l < count; ++l) own[l] += a * as[l], mean[l] += b * bs[l];
      }
      if (!keep) {
        const auto ms = load(row + j, count);
        Store es(rest + j, count);
        for (int l = 0; l < count; ++l) es[l] = ms[l] - own[l];
      }
      Store gs(row + j, count);
      for (int l = 0; l < count; ++l) gs[l] = mean[l];
    });
  }
};

}  // namespace kernels

/// All rows of M on a GPU.
void run_pass(Device device, const kernels::AddAndProject& pass);
void run_pass(Device device, const kernels::SplitOffProjection& pass);

}  // namespace ab
