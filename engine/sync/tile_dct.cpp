// SPDX-License-Identifier: MIT
#include "engine/sync/tile_dct.h"

#include <cmath>
#include <numbers>

#include "engine/backend/backend.h"
#include "engine/kernels/tiles.h"

namespace ab {

TileDct::TileDct(Device device) {
  std::vector<float> c;
  for (int u = 0; u < kTileSide; ++u)
    for (int x = 0; x < kTileSide; ++x)
      c.push_back(static_cast<float>(std::sqrt((u == 0 ? 1.0 : 2.0) / kTileSide) *
                                     std::cos(std::numbers::pi * (2 * x + 1) * u / (2.0 * kTileSide))));
  cosines_ = Tensor::from(c, {kTileSide, kTileSide}, device);
}

void TileDct::transform(bool is_forward, const Tensor& buffer, std::int64_t tiles, const Tensor& scratch) const {
  AB_ASSERT(buffer.rank() == 2 && buffer.dim(1) == kTileSide && buffer.shape() == scratch.shape());
  const std::int64_t rows = buffer.dim(0), tile_rows = tiles * kTileSide;
  if (rows == 0) return;
  Backend& math = backend(buffer.device());
  math.gemm({.transpose_b = is_forward}, buffer, cosines_, scratch);
  const MatrixGrid all{.row_stride = kTileSide, .inner_stride = kTileSide * kTileSide};
  if (tiles > 0)
    math.batched_gemm({.inner = tiles,
                       .m = kTileSide,
                       .n = kTileSide,
                       .k = kTileSide,
                       .transpose_a = !is_forward,
                       .a = {.row_stride = kTileSide},
                       .b = all,
                       .c = all},
                      cosines_, scratch, buffer);
  if (rows > tile_rows) buffer.slice(tile_rows, rows).copy_from(scratch.slice(tile_rows, rows));
}

}  // namespace ab
