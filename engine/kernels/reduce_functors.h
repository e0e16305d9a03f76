#pragma once
// SPDX-License-Identifier: MIT
//
// The functors of reduce.h.

#include "engine/core/tensor.h"
#include "engine/kernels/elementwise_functors.h"
#include "engine/kernels/lanes.h"
#include "engine/kernels/pixel_table.h"

namespace ab::kernels {

inline constexpr std::int64_t kReduceChunk = 16384;

AB_HD inline std::int64_t reduce_chunk_size(std::int64_t n, std::int64_t chunk) {
  const std::int64_t left = n - chunk * kReduceChunk;
  return left < kReduceChunk ? left : kReduceChunk;
}

/// partial[chunk] = Σ f(x) of one chunk, summed as V.
template <class T, class V, class F> struct ChunkSum {
  const T* x;
  double* partial;
  std::int64_t n;
  template <class Team> AB_HD void operator()(const Team& team, std::int64_t chunk) const {
    const V total = lane_sum<V>(team, reduce_chunk_size(n, chunk), F{}, x + chunk * kReduceChunk);
    if (team.lane() == 0) partial[chunk] = total;
  }
};
template <class T> using ChunkSquares = ChunkSum<T, double, Square<double>>;
/// Σ 0·x: zero for finite elements, NaN when one is not.
template <class T> using ChunkFinite = ChunkSum<T, compute_t<T>, TimesZero<compute_t<T>>>;

/// One row: total += the sum of all partial results.
struct AddPartials {
  const double* partial;
  double* total;
  std::int64_t n;
  template <class Team> AB_HD void operator()(const Team& team, std::int64_t) const {
    const double sum = lane_sum<double>(team, n, Same<double>{}, partial);
    if (team.lane() == 0) *total += sum;
  }
};

/// The rows of [..., C] in chunks that are summed one by one: on a CPU they fit the second-level cache, on a GPU they
/// are those of batch norm.
PixelTable column_table(const Tensor& m);

/// The first column of each channel becomes the sum of all its columns in a chunk.
template <class Team, class C>
AB_HD void add_columns(const Team& team, const PixelTable& table, std::int64_t chunk, C* partial) {
  merge_columns(team, table, [&](std::int64_t c, std::int64_t first, std::int64_t last, std::int64_t span) {
    C* const sums = partial + chunk * table.columns() + c;
    C total{};
    for (std::int64_t s = first; s < last; s += span) total += sums[s * table.channels];
    sums[first * table.channels] = total;
  });
}

/// partial[chunk, c] = Σ m[i, c] over the pixels i of one chunk.
template <class T> struct ChunkColumnSums {
  using C = compute_t<T>;
  PixelTable table;
  const T* m;
  C* partial;  // [chunks, columns], of which [chunks, channels] is the result
  template <class Team> AB_HD void operator()(const Team& team, std::int64_t chunk) const {
    constexpr int width = kLaneWidth<Team, T>;
    const std::int64_t columns = table.columns();
    const ChunkRows rows = table.rows_of(chunk);
    for_each_block<width>(team, columns, packable<width>(columns, m), [&](std::int64_t c, auto count) {
      C sum[width] = {};
      for_each_row_group_from_last<Team, 1>(rows, [&](std::int64_t row, auto group) {
        const auto ms = load_rows(m + row * columns + c, columns, count, group);
        for (int u = 0; u < group; ++u)
          for (int j = 0; j < count; ++j) sum[j] += ms[u][j];
      });
      for (int j = 0; j < count; ++j) partial[chunk * columns + c + j] = sum[j];
    });
    add_columns(team, table, chunk, partial);
  }
};

/// One block of channels per team: y[c] = Σ partial[chunk, c].
template <class T> struct SumColumnPartials {
  PixelTable table;
  const compute_t<T>* partial;  // [chunks, columns], of which [chunks, channels] is read
  T* y;
  template <class Team> AB_HD void operator()(const Team& team, std::int64_t block) const {
    using C = compute_t<T>;
    constexpr int width = kLaneWidth<Team, C>;
    const std::int64_t columns = table.columns();
    with_block<C, Team>(table.channels, block, packable<width>(columns, partial), [&](std::int64_t c, auto count) {
      C sum[width] = {};
      for (std::int64_t i = team.lane(); i < table.chunks(); i += team.size()) {
        const auto sums = load(partial + i * columns + c, count);
        for (int j = 0; j < count; ++j) sum[j] += sums[j];
      }
      for (int j = 0; j < count; ++j) sum[j] = team.sum(sum[j]);
      for (int j = 0; j < count && team.lane() == 0; ++j) y[c + j] = static_cast<T>(sum[j]);
    });
  }
};

/// y = Σ partial over the chunks of a table; y: [channels]
template <class T> void sum_column_partials(const PixelTable& table, const Tensor& partial, const Tensor& y) {
  using C = compute_t<T>;
  for_each_row(y.device(), blocks_of<C>(y.device(), table.channels), table.chunks() * kPackWidth<C>,
               SumColumnPartials<T>{table, partial.data<C>(), y.data<T>()});
}

}  // namespace ab::kernels
