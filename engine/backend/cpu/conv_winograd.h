#pragma once
// SPDX-License-Identifier: MIT
//
// Winograd's minimal filtering F(4×4, 3×3) (Lavin & Gray, "Fast Algorithms for Convolutional Neural
// Networks", arXiv 1509.09308) on NHWC activations, without reorders. A 4×4 tile of the result needs 36
// multiplications per pair of channels instead of 144; the constants up to 8 in the transforms cost about one
// decimal digit. With tiles t, d_t the 6×6 input patch under tile t, and e one of the 36 places in a
// transformed tile:
//   forward          V = Bᵀ d B    U = G w Gᵀ     M[e] = V[e] · U[e]        y_t = Aᵀ M_t A + bias
//   backward data    the forward of dy with the kernel turned by 180° and its channels exchanged
//   backward weight  V = Bᵀ d B    P = A dy_t Aᵀ  dU[e] = P[e]ᵀ · V[e]      dw = Gᵀ dU G

#include "engine/backend/cpu/conv.h"

namespace ab::cpu {

/// Whether this file is compiled for vectors wide enough to beat the code that oneDNN generates at run time.
#if defined(__x86_64__) && !defined(__AVX2__)
inline constexpr bool kWinogradIsFast = false;
#else
inline constexpr bool kWinogradIsFast = true;
#endif

/// False, with nothing written, unless the kernel is 3×3 with stride 1, dilation 1, one group, padding up to
/// 2, and both channel counts are multiples of the width of a vector (16, 8 or 4 floats, as compiled).
bool conv_winograd(const Conv2dSpec& spec, ConvDirection direction, const ConvTensors& t);
std::size_t winograd_scratch_bytes(const Conv2dSpec& spec, ConvDirection direction);

}  // namespace ab::cpu
