#pragma once
// SPDX-License-Identifier: MIT
//
// oneDNN, in its versions 2 (which has operation descriptors) and 3, as onednn_*.cpp share it. Nothing else includes it.

#include <cstddef>

#include <oneapi/dnnl/dnnl.hpp>

namespace ab::cpu {

/// One for the process: oneDNN shares compiled kernels between threads through it.
const dnnl::engine& onednn_engine();
/// Of the calling thread.
dnnl::stream& onednn_stream();

/// With a scratchpad that the caller brings: oneDNN's own one is tied to the thread that compiled.
inline dnnl::primitive_attr user_scratchpad() {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}

/// Kernels that a thread keeps of one kind; then it forgets them all, as splits may choose other ranks r time and again.
inline constexpr std::size_t kMostCompiled = 1024;

/// Memory of no address yet.
inline dnnl::memory unbound(const dnnl::memory::desc& desc) { return {desc, onednn_engine(), nullptr}; }

}  // namespace ab::cpu
