#pragma once
// SPDX-License-Identifier: MIT
//
// The passes over memory of low-rank gradient compression (engine/sync/powersgd.h): M [n, m] is large, its factors
// P [r, n] and Q [r, m] are small. Factors lie as rows, so that all of them are read and written along memory.
//   add_and_project        M = G + E and P = Q·Mᵀ, in one pass over G and E
//   split_off_projection   E = M − P_ownᵀ·Q_own and Ĝ = Pᵀ·Q in place of M, in one pass
//   orthonormalise_rows    Gram–Schmidt over the rows of many factors, in one launch

#include <vector>

#include "engine/core/random.h"
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

/// A factor for orthonormalise_rows().
struct FactorRows {
  float* rows;  ///< [count, length]
  std::int64_t length, count;
  std::uint64_t stream;  ///< of the numbers that stand in for a row that vanishes
};
/// A table of them on `device`.
Tensor factor_table(const std::vector<FactorRows>& factors, Device device);
/// Gram–Schmidt, row by row, once more for a row that loses most of its length on the way. A row of zeros, or one that
/// depends on those before it, gives way to numbers from Philox(seed, stream) at `step`, so that no factor stays dead.
/// A row that is not finite makes those after it NaN.
void orthonormalise_rows(const Tensor& table, std::uint64_t seed, std::int64_t step);

/// Where a factor's random numbers of `step` begin in its stream.
inline std::uint64_t factor_draw(std::int64_t step) { return static_cast<std::uint64_t>(step) << 32; }

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

/// Factor i of a table.
struct OrthonormaliseRows {
  const FactorRows* factors;
  std::uint64_t seed, draw;

  template <class Team> AB_HD void operator()(const Team& team, std::int64_t i) const {
    const FactorRows f = factors[i];
    for (std::int64_t k = 0; k < f.count; ++k) {
      float* const row = f.rows + k * f.length;
      if (clear_of_others(team, f, k)) continue;
      const Philox random{seed, f.stream};
      const std::uint64_t first = draw + static_cast<std::uint64_t>(k * f.length);
      lane_map(
          team, f.length, row,
          [&](std::int64_t j, float) { return random.normal(first + static_cast<std::uint64_t>(j)); },
          static_cast<const float*>(row));
      team.barrier();
      clear_of_others(team, f, k);
    }
  }

 private:
  template <class Team> AB_HD static double norm(const Team& team, const float* row, std::int64_t length) {
    return sqrt(lane_sum<double>(
        team, length, [](double v) { return v * v; }, row));
  }

  /// Row k less its parts along the rows before it, to length 1. False, with the row as it was or smaller, when it is
  /// zero or nothing but rounding is left of it.
  template <class Team> AB_HD static bool clear_of_others(const Team& team, const FactorRows& f, std::int64_t k) {
    constexpr double kRounding = 1e-6, kMostIsLeft = 0.5;
    float* const row = f.rows + k * f.length;
    const double whole = norm(team, row, f.length);
    double left = whole;
    for (double before = 2 * whole + 1; left < kMostIsLeft * before && left > kRounding * whole;) {
      before = left;
      for (std::int64_t l = 0; l < k; ++l) {
        const float* const other = f.rows + l * f.length;
        const float dot = static_cast<float>(lane_sum<double>(
            team, f.length, [](double a, double b) { return a * b; }, other, static_cast<const float*>(row)));
        lane_map(
            team, f.length, row, [&](float a, float v) { return v - dot * a; }, other, static_cast<const float*>(row));
        team.barrier();
      }
      left = norm(team, row, f.length);
    }
    if (left <= kRounding * whole && whole - whole == 0) return false;
    const float scale = static_cast<float>(1 / left);
    lane_map(
        team, f.length, row, [&](float v) { return scale * v; }, static_cast<const float*>(row));
    team.barrier();
    return true;
  }
};

}  // namespace kernels
}  // namespace ab
