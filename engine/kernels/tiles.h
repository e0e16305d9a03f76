#pragma once
// SPDX-License-Identifier: MIT
//
// A tensor as tiles of 64×64 elements, for methods that transform or select tile by tile (DeMo, SparseLoCo). A convolution's
// weight is the matrix [outputs, all else]. A vector, and a tensor whose first dimension is 1, lies in runs of 64. Tiles
// follow each other row by row, with zeros where the tensor ends.

#include "engine/core/tensor.h"
#include "engine/device/exec.h"

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

}  // namespace kernels
}  // namespace ab
