#pragma once
// SPDX-License-Identifier: MIT
//
// Convolution on the CPU in float32 and bfloat16: one problem, several algorithms. The fastest one depends on the shape:
// select_conv().

#include <cstddef>

#include "engine/backend/backend.h"

namespace ab::cpu {

enum class ConvAlgorithm {
  direct,        ///< oneDNN on NHWC activations (conv_direct()): works for everything
  winograd,      ///< a quarter of the multiplications of 3×3 with stride 1; channels in multiples of a vector
  pointwise,     ///< a 1×1 convolution is a matrix product over channels
  im2col,        ///< input patches as rows of a matrix, then one matrix product
  image_matrix,  ///< the whole convolution as one matrix over whole images; for images of a few pixels
};

/// The tensors of a convolution, all float32 or float64, or all bfloat16 but a gradient of weights, which is float32; the direction decides
/// which one is written.
struct ConvTensors {
  Tensor x;     ///< activations, or dx
  Tensor w;     ///< weights, or dw
  Tensor bias;  ///< forward only; may be undefined
  Tensor y;     ///< result, or dy
  DType type() const { return x.dtype(); }
};

/// Bytes of scratch() that a run of the algorithm takes, where it applies, with activations of `type`.
std::size_t conv_scratch_bytes(ConvAlgorithm algorithm, const Conv2dSpec& spec, ConvDirection direction, DType type);

/// Runs `algorithm` on the calling thread's OpenMP team; false, with nothing written, when it does not apply.
/// Not to be called inside a parallel region.
bool run_conv(ConvAlgorithm algorithm, const Conv2dSpec& spec, ConvDirection direction, const ConvTensors& t);

/// The algorithm for a shape: a table of rules found by measurement (bench/conv_bench.cpp), never by timing at run time, so
/// that every run and every rank on processors of one kind computes the same bits.
ConvAlgorithm select_conv(const Conv2dSpec& spec, ConvDirection direction, DType type);

/// Whether that one computes in bfloat16. Where it does not, float32 copies are the way.
bool takes_bfloat16(const Conv2dSpec& spec, ConvDirection direction);

/// Runs every shape in float32: compiled by oneDNN (onednn_conv.cpp); in builds without it (no_onednn.cpp) a matrix product. In bfloat16 false, with nothing written, where the processor or oneDNN has no fast way.
bool conv_direct(const Conv2dSpec& spec, ConvDirection direction, const ConvTensors& t);
/// Compiles it, as the run would.
std::size_t direct_scratch_bytes(const Conv2dSpec& spec, ConvDirection direction, DType type);

// Convolutions that end in a matrix product (conv_gemm.cpp). Each function returns false, with nothing written, when the
// shape does not allow it (im2col alone knows groups), or the type: im2col knows float32 and float64, the others multiply float32,
// and bfloat16 where the processor does.

/// 1×1, stride 1, over pixels x: [P, C], W: [K, C], y: [P, K]:   y = x Wᵀ + b   dx = dy W   dW = dyᵀ x
bool conv_pointwise(const Conv2dSpec& spec, ConvDirection direction, const ConvTensors& t);

/// Patches P[N·H'·W', kh·kw·C] of x, group by group:   y = P Wᵀ + b   dP = dy W, added back into dx   dW = dyᵀ P
bool conv_im2col(const Conv2dSpec& spec, ConvDirection direction, const ConvTensors& t);
std::size_t im2col_scratch_bytes(const Conv2dSpec& spec);

/// Whole images x: [N, H·W·C], y: [N, H'·W'·K] and the matrix E[H'·W'·K, H·W·C] that holds, for every pair of
/// an output and an input pixel, the kernel tap between them or zero:   y = x Eᵀ + b   dx = dy E   dE = dyᵀ x
/// For 3×3 on 2×2 images that is 16 pixel products where im2col multiplies 36, mostly by padding.
bool conv_image_matrix(const Conv2dSpec& spec, ConvDirection direction, const ConvTensors& t);
std::size_t image_matrix_scratch_bytes(const Conv2dSpec& spec);

/// Channels that conv_winograd() takes at most.
inline constexpr std::int64_t kMostWinogradChannels = 4096;
/// Whether conv_winograd.cpp is compiled for vectors wide enough to beat the code that oneDNN generates at run time.
#if defined(__x86_64__) && !defined(__AVX2__)
inline constexpr bool kWinogradIsFast = false;
#else
inline constexpr bool kWinogradIsFast = true;
#endif

/// False, with nothing written, unless the kernel is 3×3 with stride 1, dilation 1, one group, padding up to
/// 2, and both channel counts are multiples of the width of a vector (16, 8 or 4 floats, as compiled) up to
/// kMostWinogradChannels.
bool conv_winograd(const Conv2dSpec& spec, ConvDirection direction, const ConvTensors& t);
std::size_t winograd_scratch_bytes(const Conv2dSpec& spec, ConvDirection direction);

/// Working memory of these convolutions, one buffer per thread: a rank may be a thread, so nothing is shared, and no rank waits
/// for another. At least `bytes` bytes, aligned to 64, valid until the next call on this thread.
std::byte* scratch(std::size_t bytes);

}  // namespace ab::cpu
