#pragma once
// SPDX-License-Identifier: MIT
//
// The part of oneDNN's C++ interface that differs between versions 2 (which has operation descriptors)
// and 3: with its .cpp file the only place that knows there are two.

#include <oneapi/dnnl/dnnl.hpp>

#include "engine/backend/cpu/conv.h"

namespace ab::cpu {

/// Memory layouts and geometry of one convolution; `bias` is a zero descriptor when there is none.
struct OneDnnConvDesc {
  dnnl::memory::desc src, weights, bias, dst;
  dnnl::memory::dims strides, dilations, padding;  ///< a dilation of 0 is a dense kernel, as oneDNN counts
};

/// A compiled convolution, and the layouts that oneDNN has chosen where `any` was asked for.
struct OneDnnConvPrimitive {
  dnnl::primitive primitive;
  dnnl::memory::desc weights, scratchpad;
};

/// Compiles with a caller-owned scratchpad: oneDNN's own one is tied to the creating thread.
OneDnnConvPrimitive make_onednn_conv(const dnnl::engine& engine, ConvDirection direction, const OneDnnConvDesc& desc);

}  // namespace ab::cpu
