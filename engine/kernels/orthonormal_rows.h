#pragma once
// SPDX-License-Identifier: MIT
//
// Orthonormal rows of many factors R [r, length] at once, those that Gram–Schmidt gives, by Cholesky:
//   G = R·Rᵀ = L·Lᵀ,   R becomes L⁻¹·R
// Gram–Schmidt waits r²/2 times for a sum over a row; here all sums of G, and all columns of L⁻¹·R, are independent, and
// L takes a few waits for each row. G, L and L⁻¹ are in float64: a row may share all but a hundred-thousandth of its length
// with those before it. Where many do, so that L⁻¹ is large, the rows that come out take another turn, or two.

#include <vector>

#include "engine/core/random.h"
#include "engine/core/tensor.h"
#include "engine/kernels/lanes.h"

namespace ab {

/// A factor of which rows are made orthonormal.
struct FactorRows {
  float* rows;  ///< [count, length], count <= length
  std::int64_t length, count;
  std::uint64_t stream;  ///< of the numbers that stand in for a row that vanishes
  /// [count + 1, count + 1]; of the first `count` rows and columns below the diagonal L, on it 1/L, above it L⁻¹ transposed.
  double* gram = nullptr;

  AB_HD double* gram_row(std::int64_t k) const { return gram + k * (count + 1); }
  /// Row k's squared length, as it came.
  AB_HD double& whole(std::int64_t k) const { return gram_row(count)[k]; }
  /// The last turn that the rows take, from 0.
  AB_HD double& last_turn() const { return gram_row(count)[count]; }
  AB_HD bool takes(int turn) const { return turn == 0 || turn <= last_turn(); }
};

class OrthonormalRows {
 public:
  static constexpr int kTurns = 3;

  OrthonormalRows() = default;
  OrthonormalRows(std::vector<FactorRows> factors, Device device);

  /// A row of zeros, or one that depends on those before it, gives way to numbers from Philox(seed, stream) at `step`, so
  /// that no factor stays dead. A row that is not finite makes those after it NaN.
  void make(std::uint64_t seed, std::int64_t step) const;

  const FactorRows* factors() const { return reinterpret_cast<const FactorRows*>(table_.data<std::uint8_t>()); }
  std::int64_t count() const { return count_; }
  std::int64_t most_rows() const { return most_rows_; }
  std::int64_t most_columns() const { return most_columns_; }

 private:
  Tensor table_, grams_;
  std::int64_t count_ = 0, most_rows_ = 0, most_columns_ = 0;
};

/// Where a factor's random numbers of `step` begin in its stream.
inline std::uint64_t factor_draw(std::int64_t step) { return static_cast<std::uint64_t>(step) << 32; }

namespace kernels {

/// Σ row · other, for kOthers neighbouring rows, so that `row` is read once for all of them.
template <int kOthers, class Team>
AB_HD void dots_of_rows(const Team& team, std::int64_t length, const float* row, const float* others, double* out) {
  constexpr int width = kIsSerial<Team> ? 16 : kPackWidth<float>;
  double sums[kOthers][width] = {};
  for_each_block<width>(team, length, packable<width>(length, row, others), [&](std::int64_t j, auto count) {
    const auto as = load(row + j, count);
    for (int o = 0; o < kOthers; ++o) {
      const auto bs = load(others + o * length + j, count);
      for (int i = 0; i < count; ++i) sums[o][i] += static_cast<double>(as[i]) * static_cast<double>(bs[i]);
    }
  });
  for (int o = 0; o < kOthers; ++o) {
    for (int half = width / 2; half > 0; half /= 2)
      for (int i = 0; i < half; ++i) sums[o][i] += sums[o][i + half];
    const double sum = team.sum(sums[o][0]);
    if (team.lane() == 0) out[o] = sum;
  }
}

/// Row `item % most_rows` of the G of factor `item / most_rows`, up to the diagonal.
struct GramOfRows {
  const FactorRows* factors;
  std::int64_t most_rows;
  int turn;

  template <class Team> AB_HD void operator()(const Team& team, std::int64_t item) const {
    const FactorRows f = factors[item / most_rows];
    const std::int64_t k = item % most_rows;
    if (k >= f.count || !f.takes(turn)) return;
    const float* const row = f.rows + k * f.length;
    double* const g = f.gram_row(k);
    constexpr int together = 4;
    std::int64_t l = 0;
    for (; l + together <= k + 1; l += together)
      dots_of_rows<together>(team, f.length, row, f.rows + l * f.length, g + l);
    for (; l <= k; ++l) dots_of_rows<1>(team, f.length, row, f.rows + l * f.length, g + l);
  }
};

/// L and L⁻¹ of factor i, from its G.
struct InvertCholesky {
  const FactorRows* factors;
  std::uint64_t seed, draw;
  int turn;

  template <class Team> AB_HD void operator()(const Team& team, std::int64_t i) const {
    const FactorRows f = factors[i];
    if (!f.takes(turn)) return;
    for (std::int64_t k = 0; k < f.count; ++k) {
      double left = squared_rest(team, f, k);
      double whole = f.gram_row(k)[k];
      if (left <= kRounding * whole && whole - whole == 0) {
        replace_row(team, f, k);
        whole = f.gram_row(k)[k];
        left = squared_rest(team, f, k);
        if (left < kRounding * whole) left = kRounding * whole;
      }
      team.barrier();
      if (team.lane() == 0) f.whole(k) = whole;
      finish_column(team, f, k, 1 / sqrt(left));
    }
    const double growth = team.sum(invert(team, f));
    if (team.lane() == 0) f.last_turn() = growth > kMostGrowth ? turn + 1 : turn;
  }

 private:
  static constexpr double kRounding = 1e-10;  // of a squared length; float32 rows hold 1e-14
  static constexpr double kMostGrowth = 1e8;  // of roundings of 1e-16, in products of rows

  /// Σ L_km · L_lm for m < n.
  AB_HD static double dot_in_l(const FactorRows& f, std::int64_t k, std::int64_t l, std::int64_t n) {
    const double *const a = f.gram_row(k), *const b = f.gram_row(l);
    double sum = 0;
    for (std::int64_t m = 0; m < n; ++m) sum += a[m] * b[m];
    return sum;
  }

  /// Of row k's squared length, what the rows before it leave.
  template <class Team> AB_HD static double squared_rest(const Team& team, const FactorRows& f, std::int64_t k) {
    const double* const row = f.gram_row(k);
    return row[k] - lane_sum<double>(
                        team, k, [](double v) { return v * v; }, row);
  }

  template <class Team>
  AB_HD static void finish_column(const Team& team, const FactorRows& f, std::int64_t k, double one_over_root) {
    if (team.lane() == 0) f.gram_row(k)[k] = one_over_root;
    for (std::int64_t i = k + 1 + team.lane(); i < f.count; i += team.size()) {
      double& g = f.gram_row(i)[k];
      g = (g - dot_in_l(f, i, k, k)) * one_over_root;
    }
    team.barrier();
  }

  /// Row k becomes random numbers, and what G and L know of it is made anew.
  template <class Team> AB_HD void replace_row(const Team& team, const FactorRows& f, std::int64_t k) const {
    float* const row = f.rows + k * f.length;
    const Philox random{seed, f.stream};
    const std::uint64_t first = draw + static_cast<std::uint64_t>(k * f.length);
    lane_map(
        team, f.length, row,
        [&](std::int64_t j, float) { return random.normal(first + static_cast<std::uint64_t>(j)); },
        static_cast<const float*>(row));
    team.barrier();
    double* const g = f.gram_row(k);
    for (std::int64_t l = 0; l <= k; ++l) dots_of_rows<1>(team, f.length, row, f.rows + l * f.length, g + l);
    for (std::int64_t i = k + 1; i < f.count; ++i)
      dots_of_rows<1>(team, f.length, row, f.rows + i * f.length, f.gram_row(i) + k);
    if (team.lane() == 0)
      for (std::int64_t l = 0; l < k; ++l) g[l] = (g[l] - dot_in_l(f, k, l, l)) * f.gram_row(l)[l];
    team.barrier();
  }

  /// Column c of L⁻¹, by a lane, goes to row c above the diagonal. Returns the lane's part of Σ (L⁻¹_kc)² · |row c|², by which
  /// the roundings of G are multiplied.
  template <class Team> AB_HD static double invert(const Team& team, const FactorRows& f) {
    double growth = 0;
    for (std::int64_t c = team.lane(); c < f.count; c += team.size()) {
      double* const inverse = f.gram_row(c);
      double squares = inverse[c] * inverse[c];
      for (std::int64_t i = c + 1; i < f.count; ++i) {
        const double* const l = f.gram_row(i);
        double sum = 0;
        for (std::int64_t m = c; m < i; ++m) sum += l[m] * inverse[m];
        inverse[i] = -sum * l[i];
        squares += inverse[i] * inverse[i];
      }
      growth += squares * f.whole(c);
    }
    return growth;
  }
};

/// Columns of L⁻¹·R, in place of those of R: block `item % blocks` of factor `item / blocks`. From the last row up, as a
/// row needs those above it as they were.
struct TurnRows {
  static constexpr std::int64_t kColumns = 128;
  const FactorRows* factors;
  std::int64_t blocks;
  int turn;

  template <class Team> AB_HD void operator()(const Team& team, std::int64_t item) const {
    constexpr int width = kLaneWidth<Team, float>;
    const FactorRows f = factors[item / blocks];
    const std::int64_t begin = item % blocks * kColumns;
    if (begin >= f.length || !f.takes(turn)) return;
    const std::int64_t columns = f.length - begin < kColumns ? f.length - begin : kColumns;
    float* const from = f.rows + begin;
    for_each_block<width>(team, columns, packable<width>(f.length, from), [&](std::int64_t j, auto count) {
      for (std::int64_t k = f.count; k-- > 0;) {
        double sums[width] = {};
        for (std::int64_t l = 0; l <= k; ++l) {
          const double w = f.gram_row(l)[k];
          const auto rows = load(from + l * f.length + j, count);
          for (int i = 0; i < count; ++i) sums[i] += w * static_cast<double>(rows[i]);
        }
        Store to(from + k * f.length + j, count);
        for (int i = 0; i < count; ++i) to[i] = static_cast<float>(sums[i]);
      }
    });
  }
};

}  // namespace kernels
}  // namespace ab
