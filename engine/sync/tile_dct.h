#pragma once
// SPDX-License-Identifier: MIT
//
// The orthonormal cosine transform (DCT-II) of every tile of a buffer, in place, with
//   C[u, x] = sqrt((u = 0 ? 1 : 2) / 64) · cos(π (2x + 1) u / 128)
//   tile [64, 64]   Y = C·X·Cᵀ      X = Cᵀ·Y·C
//   run [64]        y = C·x         x = Cᵀ·y

#include "engine/core/tensor.h"

namespace ab {

class TileDct {
 public:
  explicit TileDct(Device device);

  /// buffer: [rows, 64] float32, of which the first 64·tiles rows are tiles and the others runs. scratch: the same size
  void forward(const Tensor& buffer, std::int64_t tiles, const Tensor& scratch) const {
    transform(true, buffer, tiles, scratch);
  }
  void inverse(const Tensor& buffer, std::int64_t tiles, const Tensor& scratch) const {
    transform(false, buffer, tiles, scratch);
  }

 private:
  void transform(bool is_forward, const Tensor& buffer, std::int64_t tiles, const Tensor& scratch) const;

  Tensor cosines_;  // C
};

}  // namespace ab
