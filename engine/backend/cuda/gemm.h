#pragma once
// SPDX-License-Identifier: MIT
//
// Row-major matrix products on a GPU.

#include <algorithm>

#include "engine/backend/backend.h"
#include "engine/backend/cuda/thread_libraries.h"

namespace ab::cuda {

/// Backend::gemm.
void gemm(ThreadLibraries& libraries, const GemmSpec& spec, const Tensor& a, const Tensor& b, const Tensor& c,
          const Epilogue& epilogue = {});
/// Backend::gemm_backward_weight.
void gemm_backward_weight(ThreadLibraries& libraries, const Tensor& dy, const Tensor& x, const Tensor& dw,
                          const Tensor& db);
/// Backend::batched_gemm: one launch for each step of the shorter of the two loops.
void batched_gemm(ThreadLibraries& libraries, const BatchedGemmSpec& spec, const Tensor& a, const Tensor& b,
                  const Tensor& c);

/// The largest power of two, up to `at_most`, that divides the address. Tensors come aligned to 256 bytes,
/// but a slice of one may start anywhere, and the fastest algorithms must not be chosen for that.
inline std::int64_t alignment_of(const Tensor& t, std::int64_t at_most) {
  const auto address = reinterpret_cast<std::uintptr_t>(t.raw());
  return std::min(at_most, static_cast<std::int64_t>(address & (~address + 1)));
}

/// Null where the tensor is undefined.
inline void* address_of(const Tensor& t) { return t.defined() ? t.raw() : nullptr; }

}  // namespace ab::cuda
