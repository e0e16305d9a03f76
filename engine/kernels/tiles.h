#pragma once
// SPDX-License-Identifier: MIT
//
// A tensor as tiles of 64×64 elements, for methods that transform or select tile by tile (DeMo, SparseLoCo). A convolution's
// weight is the matrix [outputs, all else]. A vector, and a tensor whose first dimension is 1, lies in runs of 64. Tiles
// follow each other row by row, with zeros where the tensor ends.

#include "engine/kernels/finite_check.h"
#include "engine/kernels/select.h"

namespace ab {

inline constexpr std::int64_t kTileSide = 64;

struct TileGrid {
  std::int64_t rows = 1, columns = 0;  ///< of the matrix; a vector has one row

  AB_HD bool is_vector() const { return rows == 1; }
  AB_HD std::int64_t height() const { return is_vector() ? 1 : kTileSide; }  ///< rows of a tile
  AB_HD std::int64_t tile_size() const { return height() * kTileSide; }      ///< 4096, or 64 of a vector
  /// What a tile has of the tensor.
  AB_HD std::int64_t rows_of(std::int64_t tile) const {
    const std::int64_t left = rows - tile / across() * height();
    return left < height() ? left : height();
  }
  AB_HD std::int64_t columns_of(std::int64_t tile) const {
    const std::int64_t left = columns - tile % across() * kTileSide;
    return left < kTileSide ? left : kTileSide;
  }
  AB_HD std::int64_t across() const { return (columns + kTileSide - 1) / kTileSide; }
  std::int64_t tiles() const { return (rows + height() - 1) / height() * across(); }
  std::int64_t elements() const { return tiles() * tile_size(); }  ///< zeros included
  /// Where element `at` of a tile lies in the tensor; −1: nowhere, it is a zero behind its end.
  AB_HD std::int64_t place(std::int64_t tile, std::int64_t at) const {
    const std::int64_t row = tile / across() * height() + at / kTileSide;
    const std::int64_t column = tile % across() * kTileSide + at % kTileSide;
    return row < rows && column < columns ? row * columns + column : -1;
  }
};

TileGrid tile_grid(const Shape& shape);

/// x: the tensor, tiles: [elements()], both float32.
void to_tiles(const TileGrid& grid, const Tensor& x, const Tensor& tiles);
void from_tiles(const TileGrid& grid, const Tensor& tiles, const Tensor& x);
/// x −= what is in the tiles
void subtract_tiles(const TileGrid& grid, const Tensor& tiles, const Tensor& x);

// The k largest elements of every tile by magnitude, or all where a tile has fewer. A team searches the k-th magnitude of its tile bit
// by bit and then takes what reaches it, in the order of the elements. Among equal ones the first are taken, so both processors take
// the same.

/// Every tile has as many slots for what is taken of it; where a tile has fewer elements its last slots stay empty.
struct TileTopk {
  TileGrid grid;
  std::int64_t k = 1;

  AB_HD std::int64_t slots_per_tile() const { return taken(0); }  // no tile is larger
  AB_HD std::int64_t taken(std::int64_t tile) const {
    const std::int64_t all = grid.rows_of(tile) * grid.columns_of(tile);
    return k < all ? k : all;
  }
  std::int64_t slots() const { return grid.tiles() * slots_per_tile(); }
  /// Whether nothing is left: then slot j of a tile is its element j.
  AB_HD bool takes_all() const { return k >= grid.rows_of(0) * grid.columns_of(0); }
};

/// positions: uint8 [2 · slots()], std::uint16_t each, where in its tile an element lies (TileGrid::place()); values: float32 [slots()].
/// Values of empty slots are 0. x: the tensor, float32. All values are 0 where `marked` has found something that is not finite.
void largest_of_tiles(const TileTopk& topk, const Tensor& x, const FiniteCheck& marked, const Tensor& positions,
                      const Tensor& values);

namespace kernels {

/// One tile by a team.
struct ToTile {
  TileGrid grid;
  const float* x;
  float* tiles;
  template <class Team> AB_HD void operator()(const Team& team, std::int64_t tile) const {
    for (std::int64_t i = team.lane(); i < grid.tile_size(); i += team.size()) {
      const std::int64_t from = grid.place(tile, i);
      tiles[tile * grid.tile_size() + i] = from < 0 ? 0.0f : x[from];
    }
  }
};

template <bool kSubtract> struct FromTile {
  TileGrid grid;
  const float* tiles;
  float* x;
  template <class Team> AB_HD void operator()(const Team& team, std::int64_t tile) const {
    for (std::int64_t i = team.lane(); i < grid.tile_size(); i += team.size()) {
      const std::int64_t to = grid.place(tile, i);
      const float v = tiles[tile * grid.tile_size() + i];
      if (to >= 0) x[to] = kSubtract ? x[to] - v : v;
    }
  }
};

/// A tile in memory: rows of neighbours, `stride` elements from one row to the next.
struct TileRows {
  const float* first;
  std::int64_t stride;
  int height, width;

  AB_HD int elements() const { return height * width; }
};

/// How many elements have a magnitude of at least `least`, known to every lane.
template <class Team> AB_HD int count_from(const Team& team, const TileRows& x, std::uint32_t least) {
  constexpr int width = kLaneWidth<Team, float>;
  int found = 0;
  for_each_block<width>(team, x.height, x.width, packable<width>(x.stride, x.first),
                        [&](std::int64_t row, std::int64_t begin, auto count) {
                          const auto xs = load(x.first + row * x.stride + begin, count);
                          for (int j = 0; j < count; ++j) found += magnitude(xs[j]) >= least ? 1 : 0;
                        });
  return team.sum(found);
}

/// take(j, at, v) for j in [0, k): the j-th that is taken lies at place `at` of its tile and is v. 1 <= k <= x.elements(). All lanes
/// must call it.
template <class Team, class Take>
AB_HD void take_largest(const Team& team, const TileRows& x, int k, const Take& take) {
  std::uint32_t from = 0;  // at least k elements reach it
  int reach = x.elements();
  for (std::uint32_t bit = 1u << 30; bit > 0 && reach != k; bit >>= 1) {
    const int found = count_from(team, x, from | bit);
    if (found >= k) from |= bit, reach = found;
  }
  const std::uint32_t above = reach == k ? from : from + 1;
  const int need = reach == k ? 0 : k - count_from(team, x, above);  // of those that equal the k-th

  // Each lane takes a run of neighbours.
  const int n = x.elements(), of_lane = (n + team.size() - 1) / team.size();
  const int begin = team.lane() * of_lane, end = begin + of_lane < n ? begin + of_lane : n;
  const auto for_each = [&](const auto& use) {
    int row = begin / x.width, column = begin % x.width;
    for (int i = begin; i < end; ++i) {
      use(row * static_cast<int>(kTileSide) + column, x.first[row * x.stride + column]);
      if (++column == x.width) column = 0, ++row;
    }
  };
  int over = 0, equal = 0;
  if constexpr (!kIsSerial<Team>)
    for_each([&](int, float v) { over += magnitude(v) >= above, equal += magnitude(v) == from && from < above; });
  int at = team.sum_before(over), among = team.sum_before(equal);
  at += among < need ? among : need;
  for_each([&](int place, float v) {
    const std::uint32_t bits = magnitude(v);
    if (bits >= above || (bits == from && among++ < need)) take(at++, place, v);
  });
}

/// One tile by a team.
struct LargestOfTile {
  TileTopk topk;
  const float* x;
  const double* marked;
  std::uint16_t* positions;
  float* values;

  template <class Team> AB_HD void operator()(const Team& team, std::int64_t tile) const {
    const TileGrid& grid = topk.grid;
    const TileRows rows{x + grid.place(tile, 0), grid.columns, static_cast<int>(grid.rows_of(tile)),
                        static_cast<int>(grid.columns_of(tile))};
    const std::int64_t slots = topk.slots_per_tile(), taken = topk.taken(tile), first = tile * slots;
    const bool finite = *marked == 0;
    take_largest(team, rows, static_cast<int>(taken), [&](int j, int at, float v) {
      positions[first + j] = static_cast<std::uint16_t>(at);
      values[first + j] = finite ? v : 0.0f;
    });
    for (std::int64_t j = taken + team.lane(); j < slots; j += team.size())
      positions[first + j] = 0, values[first + j] = 0;
  }
};

}  // namespace kernels
}  // namespace ab
