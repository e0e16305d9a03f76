#pragma once
// SPDX-License-Identifier: MIT
//
// The part of oneDNN's C++ interface that differs between versions 2 (operation descriptors, Winograd) and
// 3 (neither): the only file that asks for DNNL_VERSION_MAJOR.

#include <oneapi/dnnl/dnnl.hpp>
#include <string>

#include "engine/backend/cpu/conv.h"

namespace ab::cpu {

/// Memory layouts and geometry of one convolution; `bias` is a zero descriptor when there is none.
struct OneDnnConvDesc {
  dnnl::memory::desc src, weights, bias, dst;
  dnnl::memory::dims strides, dilations, padding;  ///< a dilation of 0 is a dense kernel, as oneDNN counts
};

/// A compiled convolution with the layouts that oneDNN has chosen where `any` was asked for.
struct OneDnnConvPrimitive {
  dnnl::primitive primitive;  ///< empty when oneDNN has no such implementation
  dnnl::memory::desc src, weights, dst, scratchpad;
  std::string implementation;  ///< oneDNN's name of the kernel

  explicit operator bool() const { return primitive.get(true) != nullptr; }
};

/// Compiles with a caller-owned scratchpad: oneDNN's own one is tied to the creating thread.
OneDnnConvPrimitive make_onednn_conv(const dnnl::engine& engine, ConvDirection direction,
                                     dnnl::algorithm algorithm, const OneDnnConvDesc& desc);

}  // namespace ab::cpu
