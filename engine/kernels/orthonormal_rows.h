#pragma once
// SPDX-License-Identifier: MIT
//
// Orthonormal rows of many factors R [r, length] at once, those that Gram–Schmidt gives, by Cholesky:
//   G = R·Rᵀ = L·Lᵀ,   R becomes L⁻¹·R
// Gram–Schmidt waits r²/2 times for a sum over a row; here all sums of G, and all columns of L⁻¹·R, are independent, and
// L takes three waits for each row. G, L and L⁻¹ are in float64: a row may share all but a hundred-thousandth of its length
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
  /// [count + 1, count + 1]; of the first `count` rows and columns L⁻¹ up to the diagonal, L transposed above it.
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

/// L and L⁻¹ of factor i, from its G, by Gauss–Jordan: as soon as a row of L⁻¹ is known, all rows below lose their part of it.
struct InvertCholesky {
  const FactorRows* factors;
  std::uint64_t seed, draw;
  int turn;

  template <class Team> AB_HD void operator()(const Team& team, std::int64_t i) const {
    const FactorRows f = factors[i];
    if (!f.takes(turn)) return;
    for (std::int64_t k = team.lane(); k < f.count; k += team.size()) f.whole(k) = f.gram_row(k)[k];
    team.barrier();
    for (std::int64_t k = 0; k < f.count; ++k) {
      const double whole = f.whole(k);
      double left = f.gram_row(k)[k];
      if (left <= kRounding * whole && whole - whole == 0) left = replace_row(team, f, k);
      team.barrier();
      finish_row(team, f, k, 1 / sqrt(left));
      team.barrier();
      clear_column(team, f, k);
      team.barrier();
    }
    const double growth = team.sum(growth_of_roundings(team, f));
    if (team.lane() == 0) f.last_turn() = growth > kMostGrowth ? turn + 1 : turn;
  }

 private:
  static constexpr double kRounding = 1e-10;  // of a squared length; float32 rows hold 1e-14
  static constexpr double kMostGrowth = 1e8;  // of roundings of 1e-16, in products of rows

  template <class Team>
  AB_HD static void finish_row(const Team& team, const FactorRows& f, std::int64_t k, double one_over_root) {
    double* const row = f.gram_row(k);
    if (team.lane() == 0) row[k] = one_over_root;
    for (std::int64_t j = team.lane(); j < k; j += team.size()) row[j] *= one_over_root;
    for (std::int64_t i = k + 1 + team.lane(); i < f.count; i += team.size()) {
      double& below = f.gram_row(i)[k];
      row[i] = below * one_over_root;
      below = 0;
    }
  }

  /// The rows below k: to the right of column k the rest of G, to its left L⁻¹ as far as it is known.
  template <class Team> AB_HD static void clear_column(const Team& team, const FactorRows& f, std::int64_t k) {
    const double* const row = f.gram_row(k);
    const int across = team.size() % 32 == 0 ? 32 : team.size(), down = team.size() / across;
    for (std::int64_t i = k + 1 + team.lane() / across; i < f.count; i += down) {
      const double l = row[i];
      double* const below = f.gram_row(i);
      for (std::int64_t j = team.lane() % across; j <= i; j += across) below[j] -= l * row[j];
    }
  }

  /// Row k becomes random numbers, and what G, L and L⁻¹ know of it is made anew. Returns what rows before it leave of its
  /// squared length.
  template <class Team> AB_HD double replace_row(const Team& team, const FactorRows& f, std::int64_t k) const {
    float* const drawn = f.rows + k * f.length;
    const Philox random{seed, f.stream};
    const std::uint64_t first = draw + static_cast<std::uint64_t>(k * f.length);
    lane_map(
        team, f.length, drawn,
        [&](std::int64_t j, float) { return random.normal(first + static_cast<std::uint64_t>(j)); },
        static_cast<const float*>(drawn));
    team.barrier();
    double* const row = f.gram_row(k);
    for (std::int64_t l = 0; l <= k; ++l) dots_of_rows<1>(team, f.length, drawn, f.rows + l * f.length, row + l);
    for (std::int64_t i = k + 1; i < f.count; ++i)
      dots_of_rows<1>(team, f.length, drawn, f.rows + i * f.length, f.gram_row(i) + k);
    team.barrier();
    for (std::int64_t m = team.lane(); m < k; m += team.size()) {  // L = G·L⁻ᵀ
      double sum = 0;
      for (std::int64_t j = 0; j <= m; ++j) sum += row[j] * f.gram_row(m)[j];
      f.gram_row(m)[k] = sum;
    }
    team.barrier();
    const auto sum_above = [&](std::int64_t begin, std::int64_t column) {
      double sum = 0;
      for (std::int64_t m = begin; m < k; ++m) sum += f.gram_row(m)[k] * f.gram_row(m)[column];
      return sum;
    };
    for (std::int64_t j = team.lane(); j < k; j += team.size()) row[j] = -sum_above(j, j);
    for (std::int64_t i = k + 1 + team.lane(); i < f.count; i += team.size()) f.gram_row(i)[k] -= sum_above(0, i);
    const double whole = row[k], left = whole - sum_above(0, k);
    if (team.lane() == 0) f.whole(k) = whole;
    return left < kRounding * whole ? kRounding * whole : left;
  }

  /// A lane's part of Σ (L⁻¹_kc)² · |row c|², by which the roundings of G are multiplied.
  template <class Team> AB_HD static double growth_of_roundings(const Team& team, const FactorRows& f) {
    double growth = 0;
    for (std::int64_t k = team.lane(); k < f.count; k += team.size())
      for (std::int64_t c = 0; c <= k; ++c) growth += f.gram_row(k)[c] * f.gram_row(k)[c] * f.whole(c);
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
          const double w = f.gram_row(k)[l];
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
