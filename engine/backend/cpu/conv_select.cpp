// SPDX-License-Identifier: MIT
#include "engine/backend/cpu/conv_select.h"

#include <algorithm>

namespace ab::cpu {
namespace {

// Winograd saves three multiplications of four but transforms and reorders both activations, which the channels
// have to pay for: with 16 it is even (1.2 ms against 1.3 for 16→16 on 32×32), from 32 on it gains (0.75 against
// 1.24 on 16×16), from 128 on it more than halves the time.
bool winograd_pays(const Conv2dSpec& s) {
  const bool applies = s.kernel_h == 3 && s.kernel_w == 3 && s.stride == 1 && s.padding == 1 && s.dilation == 1 &&
                       s.groups == 1 && s.height >= 4 && s.width >= 4;
  return applies && std::min(s.in_channels, s.out_channels) >= 16;
}

// One matrix over whole images multiplies (H·W)² pixel pairs where im2col multiplies 9·H·W: up to 2×2 that is less.
// It writes the expanded weights once per call, which a batch has to pay for.
bool image_matrix_pays(const Conv2dSpec& s) {
  return s.groups == 1 && s.kernel_h == 3 && s.kernel_w == 3 && s.height * s.width <= 4 && s.in_channels >= 64 &&
         s.out_channels >= 64 && s.batch >= 32;
}

// oneDNN's direct 1×1 kernel is as fast as the matrix product while both channel counts are small.
bool pointwise_pays(const Conv2dSpec& s) {
  return s.is_pointwise() && std::min(s.in_channels, s.out_channels) >= 32 &&
         s.in_channels * s.out_channels >= 64 * 64;
}

// Weight gradients of strided convolutions with many channels: 70 ms against 88 for 128→128 on 56×56.
bool im2col_pays(const Conv2dSpec& s, ConvDirection direction) {
  return direction == ConvDirection::backward_weight && s.groups == 1 && s.stride > 1 &&
         std::min(s.in_channels, s.out_channels) >= 128;
}

}  // namespace

ConvAlgorithm select_conv(const Conv2dSpec& spec, ConvDirection direction) {
  if (image_matrix_pays(spec)) return ConvAlgorithm::image_matrix;
  if (winograd_pays(spec)) return ConvAlgorithm::winograd;
  if (pointwise_pays(spec)) return ConvAlgorithm::pointwise;
  if (im2col_pays(spec, direction)) return ConvAlgorithm::im2col;
  return ConvAlgorithm::direct;
}

}  // namespace ab::cpu
