#pragma once
// SPDX-License-Identifier: MIT
//
// The passes over memory of low-rank gradient compression (engine/sync/powersgd.h): M [n, m] is large, its factors
// P [r, n] and Q [r, m] are small. Factors lie as rows, so that all of them are read and written along memory.
//   add_and_project        M = G + E and P = Q·Mᵀ
//   split_off_projection   E = M − P_ownᵀ·Q_own and Ĝ = Pᵀ·Q in place of M
// With few factors each is one pass over its matrices, else products of the library.

#include "engine/core/tensor.h"
#include "engine/kernels/lanes.h"

namespace ab {

/// m = gradient + residual and p = q·mᵀ.   m, gradient, residual: [n, m]; q: [r, m]; p: [r, n]. All float32. An undefined
/// gradient counts as zeros.
void add_and_project(const Tensor& gradient, const Tensor& residual, const Tensor& q, const Tensor& m, const Tensor& p);

/// m = gradient + residual alone.
void add_residual(const Tensor& gradient, const Tensor& residual, const Tensor& m);

/// A product Pᵀ·Q of two factors [r, n] and [r, m].
struct RowFactors {
  Tensor p, q;
};
/// residual = m − own and m = mean; the residual stays as it is when `failed` (finite_check.h) is not zero.
void split_off_projection(const RowFactors& own, const RowFactors& mean, const Tensor& failed, const Tensor& m,
                          const Tensor& residual);

namespace kernels {

/// Row i of M. `gradient` may be null.
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

/// Row i of M.
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
}  // namespace ab
