#pragma once
// SPDX-License-Identifier: MIT
//
// Convolutions that end in a matrix product. Each function returns false, with nothing written, when the
// shape does not allow it (none of them knows groups).

#include "engine/backend/cpu/conv.h"

namespace ab::cpu {

/// 1×1, stride 1, over pixels x: [P, C], W: [K, C], y: [P, K]:   y = x Wᵀ + b   dx = dy W   dW = dyᵀ x
bool conv_pointwise(const Conv2dSpec& spec, ConvDirection direction, const ConvTensors& t);

/// Patches P[N·H'·W', kh·kw·C] of x:   y = P Wᵀ + b   dP = dy W, added back into dx   dW = dyᵀ P
bool conv_im2col(const Conv2dSpec& spec, ConvDirection direction, const ConvTensors& t);
std::size_t im2col_scratch_bytes(const Conv2dSpec& spec);

/// Whole images x: [N, H·W·C], y: [N, H'·W'·K] and the matrix E[H'·W'·K, H·W·C] that holds, for every pair of
/// an output and an input pixel, the kernel tap between them or zero:   y = x Eᵀ + b   dx = dy E   dE = dyᵀ x
/// For 3×3 on 2×2 images that is 16 pixel products where im2col multiplies 36, mostly by padding.
bool conv_image_matrix(const Conv2dSpec& spec, ConvDirection direction, const ConvTensors& t);
std::size_t image_matrix_scratch_bytes(const Conv2dSpec& spec);

}  // namespace ab::cpu
