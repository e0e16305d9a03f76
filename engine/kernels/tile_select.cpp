// SPDX-License-Identifier: MIT
#include "engine/kernels/tile_select.h"

namespace ab {

void largest_of_tiles(const TileTopk& topk, const Tensor& x, const FiniteCheck& marked, const Tensor& positions,
                      const Tensor& values) {
  const std::int64_t slots = topk.slots();
  AB_ASSERT(topk.k >= 1 && x.numel() == topk.grid.rows * topk.grid.columns);
  AB_ASSERT(positions.bytes() == static_cast<std::size_t>(2 * slots) && values.numel() == slots);
  for_each_row(x.device(), topk.grid.tiles(), topk.grid.tile_size(),
               kernels::LargestOfTile{topk, x.data<float>(), marked.failed().data<double>(),
                                      reinterpret_cast<std::uint16_t*>(positions.data<std::uint8_t>()),
                                      values.data<float>()});
}

}  // namespace ab
