#pragma once
// SPDX-License-Identifier: MIT
//
// The functions of Backend on a GPU, with the libraries of the calling thread.

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

// Backend's 2-D convolutions on a GPU: those that are matrix products as matrix products, the others by
// cuDNN.

void conv2d_forward(ThreadLibraries& libraries, const Conv2dSpec& spec, const Tensor& x, const Tensor& w,
                    const Epilogue& epilogue, const Tensor& y);
Tensor conv2d_forward_summed(ThreadLibraries& libraries, const Conv2dSpec& spec, const Tensor& x, const Tensor& w,
                             const Tensor& bias, const Tensor& y);
void conv2d_backward_data(ThreadLibraries& libraries, const Conv2dSpec& spec, const Tensor& dy, const Tensor& w,
                          const Tensor& dx, const Epilogue& epilogue);
void conv2d_backward_weight(ThreadLibraries& libraries, const Conv2dSpec& spec, const Tensor& dy, const Tensor& x,
                            const Tensor& dw, const Tensor& db);

// Backend's fused attention on a GPU.

/// Makes the plans at first use.
bool has_fused_attention(ThreadLibraries& libraries, const AttentionSpec& spec);
void attention_forward(ThreadLibraries& libraries, const AttentionSpec& spec, const Tensor& qkv, const Tensor& y,
                       const Tensor& log_sums);
void attention_backward(ThreadLibraries& libraries, const AttentionSpec& spec, const Backend::AttentionBackward& of,
                        const Tensor& dqkv);

// Thin singular value decomposition of tall float32 matrices on a GPU, W[m,n] = U · diag(s) · Vᵀ with m >= n.
//   gram    eigenvectors V of WᵀW in float64, s = sqrt(eigenvalues), U = W V / s
// Signs are fixed as on the CPU: the entry of largest magnitude in each row of Vᵀ is positive.

/// Throws Error(numerics) when `w` holds NaN or infinity or when the iteration does not converge. U has
/// orthonormal columns even where singular values vanish.
Svd svd(ThreadLibraries& libraries, const Tensor& w);

}  // namespace ab::cuda
