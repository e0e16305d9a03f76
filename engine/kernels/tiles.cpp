// SPDX-License-Identifier: MIT
#include "engine/kernels/tiles.h"

namespace ab {

TileGrid tile_grid(const Shape& shape) {
  const std::int64_t n = shape.numel(), rows = shape.rank() > 1 && n > 0 ? shape[0] : 1;
  return {rows, n / rows};
}

void to_tiles(const TileGrid& grid, const Tensor& x, const Tensor& tiles) {
  AB_ASSERT(x.numel() == grid.rows * grid.columns && tiles.numel() == grid.elements());
  for_each_row(x.device(), grid.tiles(), grid.tile_size(), kernels::ToTile{grid, x.data<float>(), tiles.data<float>()});
}

namespace {

template <bool kSubtract> void read_tiles(const TileGrid& grid, const Tensor& tiles, const Tensor& x) {
  AB_ASSERT(x.numel() == grid.rows * grid.columns && tiles.numel() == grid.elements());
  for_each_row(x.device(), grid.tiles(), grid.tile_size(),
               kernels::FromTile<kSubtract>{grid, tiles.data<float>(), x.data<float>()});
}

}  // namespace

void from_tiles(const TileGrid& grid, const Tensor& tiles, const Tensor& x) { read_tiles<false>(grid, tiles, x); }
void subtract_tiles(const TileGrid& grid, const Tensor& tiles, const Tensor& x) { read_tiles<true>(grid, tiles, x); }

}  // namespace ab
