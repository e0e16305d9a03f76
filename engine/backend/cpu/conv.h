#pragma once
// SPDX-License-Identifier: MIT
//
// float32 convolution on the CPU: one problem, several algorithms. Which is fastest depends on the shape;
// conv_select.h knows.

#include <string_view>

#include "engine/backend/backend.h"

namespace ab::cpu {

enum class ConvDirection { forward, backward_data, backward_weight };

enum class ConvAlgorithm {
  direct,        ///< oneDNN on NHWC activations (conv_direct.h): works for everything
  winograd,      ///< a quarter of the multiplications of 3×3 with stride 1; channels in multiples of a vector
  pointwise,     ///< a 1×1 convolution is a matrix product over channels
  im2col,        ///< input patches as rows of a matrix, then one matrix product
  image_matrix,  ///< the whole convolution as one matrix over whole images; for images of a few pixels
};
inline constexpr ConvAlgorithm kConvAlgorithms[] = {ConvAlgorithm::direct, ConvAlgorithm::winograd,
                                                    ConvAlgorithm::pointwise, ConvAlgorithm::im2col,
                                                    ConvAlgorithm::image_matrix};

std::string_view name_of(ConvAlgorithm algorithm);

/// The three tensors of a convolution; the direction decides which one is written.
struct ConvTensors {
  float* x = nullptr;           ///< activations, or dx
  float* w = nullptr;           ///< weights, or dw
  const float* bias = nullptr;  ///< forward only; may be null
  float* y = nullptr;           ///< result, or dy
};

/// Bytes of this thread's scratch (scratch.h) that a run of the algorithm takes, where it applies; those of oneDNN left out.
std::size_t conv_scratch_bytes(ConvAlgorithm algorithm, const Conv2dSpec& spec, ConvDirection direction);

/// Runs `algorithm` on the calling thread's OpenMP team; false, with nothing written, when it does not apply.
/// Not to be called inside a parallel region.
bool run_conv(ConvAlgorithm algorithm, const Conv2dSpec& spec, ConvDirection direction, const ConvTensors& t);

}  // namespace ab::cpu
