// SPDX-License-Identifier: MIT
#include "engine/backend/cpu/conv.h"

#include <algorithm>

#include "engine/backend/cpu/gemm.h"

namespace ab::cpu {

std::size_t conv_scratch_bytes(ConvAlgorithm algorithm, const Conv2dSpec& spec, ConvDirection direction, DType type) {
  switch (algorithm) {
    case ConvAlgorithm::winograd: return winograd_scratch_bytes(spec, direction);
    case ConvAlgorithm::im2col: return im2col_scratch_bytes(spec);
    case ConvAlgorithm::image_matrix: return image_matrix_scratch_bytes(spec);
    case ConvAlgorithm::direct: return direct_scratch_bytes(spec, direction, type);
    case ConvAlgorithm::pointwise: break;
  }
  return 0;
}

bool run_conv(ConvAlgorithm algorithm, const Conv2dSpec& spec, ConvDirection direction, const ConvTensors& t) {
  switch (algorithm) {
    case ConvAlgorithm::direct: return conv_direct(spec, direction, t);
    case ConvAlgorithm::winograd: return conv_winograd(spec, direction, t);
    case ConvAlgorithm::pointwise: return conv_pointwise(spec, direction, t);
    case ConvAlgorithm::im2col: return conv_im2col(spec, direction, t);
    case ConvAlgorithm::image_matrix: return conv_image_matrix(spec, direction, t);
  }
  return false;
}

namespace {

// bench/conv_bench.cpp measures all algorithms on any machine; these rules are of float32 on one thread of an AMD EPYC (Zen 4,
// AVX-512) with oneDNN 2.6.3, and hold on two threads but for narrow shapes with small batches.

// Winograd needs a quarter of the multiplications but transforms both activations, which the channels have to
// pay for (from 16 on they do), and the weights, which the tiles have to pay for (with 8 tiles, 512→512 takes
// twice as long as direct). Images that fill less than half of their 4×4 tiles waste what it saves.
bool winograd_pays(const Conv2dSpec& s) {
  const auto covered = [](std::int64_t size) { return (size + 3) / 4 * 4; };
  const std::int64_t h = s.out_height(), w = s.out_width();
  return kWinogradIsFast && s.kernel_h == 3 && s.kernel_w == 3 && s.stride == 1 && s.padding.h <= 2 &&
         s.padding.w <= 2 && s.dilation == 1 && s.groups == 1 && s.in_channels % 16 == 0 && s.out_channels % 16 == 0 &&
         std::max(s.in_channels, s.out_channels) <= kMostWinogradChannels && covered(h) * covered(w) <= 2 * h * w &&
         s.batch * covered(h) * covered(w) >= 32 * 16;
}

// One matrix over whole images multiplies (H·W)² pixel pairs where im2col multiplies 9·H·W: up to 2×2 that is
// less. It writes the expanded weights once per call, which a batch has to pay for.
bool image_matrix_pays(const Conv2dSpec& s, ConvDirection direction) {
  return s.groups == 1 && s.kernel_h == 3 && s.kernel_w == 3 && s.height * s.width <= 4 && s.in_channels >= 64 &&
         s.out_channels >= 64 && s.batch >= (direction == ConvDirection::forward ? 64 : 32);
}

// oneDNN's direct 1×1 kernel is as fast as the matrix product while both channel counts are small.
bool pointwise_pays(const Conv2dSpec& s) {
  return s.is_pointwise() && std::min(s.in_channels, s.out_channels) >= 32 && s.in_channels * s.out_channels >= 64 * 64;
}

// Weight gradients of strided convolutions with many channels: 70 ms against 88 for 128→128 on 56×56.
bool im2col_pays(const Conv2dSpec& s, ConvDirection direction) {
  return direction == ConvDirection::backward_weight && s.groups == 1 && s.stride != 1 &&
         std::min(s.in_channels, s.out_channels) >= 128;
}

// bfloat16 on a processor that multiplies it (measured on Zen 5, AVX512-BF16, two threads): oneDNN's direct kernels are about as
// fast as Winograd, which reads bfloat16 and multiplies float32, and wins where channels are many.
ConvAlgorithm select_native_bfloat16(const Conv2dSpec& s, ConvDirection direction) {
  const std::int64_t narrow = std::min(s.in_channels, s.out_channels), h = s.out_height(), w = s.out_width();
  if (image_matrix_pays(s, direction)) return ConvAlgorithm::image_matrix;
  if (pointwise_pays(s) && s.batch * h * w <= 1 << 15) return ConvAlgorithm::pointwise;
  const bool whole_tiles = h % 4 == 0 && w % 4 == 0;
  const bool winograd_is_faster = direction == ConvDirection::forward ? narrow >= 256 && whole_tiles
                                  : direction == ConvDirection::backward_data
                                      ? narrow >= 128 && s.in_channels * s.out_channels >= 128 * 256 && h * w >= 64
                                      : narrow >= 128 || h * w <= 64;
  return winograd_pays(s) && winograd_is_faster ? ConvAlgorithm::winograd : ConvAlgorithm::direct;
}

}  // namespace

ConvAlgorithm select_conv(const Conv2dSpec& spec, ConvDirection direction, DType type) {
  if (type == DType::float64) return ConvAlgorithm::im2col;
  if (type == DType::bfloat16 && native_bfloat16()) return select_native_bfloat16(spec, direction);
  if (image_matrix_pays(spec, direction)) return ConvAlgorithm::image_matrix;
  if (winograd_pays(spec)) return ConvAlgorithm::winograd;
  if (pointwise_pays(spec)) return ConvAlgorithm::pointwise;
  if (im2col_pays(spec, direction) && type == DType::float32) return ConvAlgorithm::im2col;
  return ConvAlgorithm::direct;
}

bool takes_bfloat16(const Conv2dSpec& spec, ConvDirection direction) {
  return native_bfloat16() || select_conv(spec, direction, DType::bfloat16) == ConvAlgorithm::winograd;
}

std::byte* scratch(std::size_t bytes) {
  thread_local Tensor buffer;
  if (bytes > buffer.bytes()) {
    buffer = {};  // before the larger one is taken
    buffer = Tensor({static_cast<std::int64_t>(bytes)}, DType::uint8);
  }
  return static_cast<std::byte*>(buffer.raw());
}

}  // namespace ab::cpu
