#pragma once
// SPDX-License-Identifier: MIT
//
// The GPU's vendor mathematics, with the libraries of the calling thread. Its functions lie in gemm.cpp, conv.cpp, attention.cpp and
// svd.cpp.

#include <algorithm>

#include "engine/backend/backend.h"
#include "engine/backend/cuda/thread_libraries.h"

namespace ab::cuda {

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(int device_index) : device_index_(device_index) {}

  void gemm(const GemmSpec& spec, const Tensor& a, const Tensor& b, const Tensor& c, const Epilogue& epilogue) override;
  void gemm_backward_weight(const Tensor& dy, const Tensor& x, const Tensor& dw, const Tensor& db) override;
  /// One launch for each step of the shorter of the two loops.
  void batched_gemm(const BatchedGemmSpec& spec, const Tensor& a, const Tensor& b, const Tensor& c) override;

  /// Makes the plans at first use.
  bool has_fused_attention(const AttentionSpec& spec) override;
  void attention_forward(const AttentionSpec& spec, const Tensor& qkv, const Tensor& y,
                         const Tensor& log_sums) override;
  void attention_backward(const AttentionSpec& spec, const AttentionBackward& of, const Tensor& dqkv) override;

  // Convolutions that are matrix products run as matrix products, the others by cuDNN.
  void conv2d_forward(const Conv2dSpec& spec, const Tensor& x, const Tensor& w, const Epilogue& epilogue,
                      const Tensor& y) override;
  Tensor conv2d_forward_summed(const Conv2dSpec& spec, const Tensor& x, const Tensor& w, const Tensor& bias,
                               const Tensor& y) override;
  void conv2d_backward_data(const Conv2dSpec& spec, const Tensor& dy, const Tensor& w, const Tensor& dx,
                            const Epilogue& epilogue) override;
  void conv2d_backward_weight(const Conv2dSpec& spec, const Tensor& dy, const Tensor& x, const Tensor& dw,
                              const Tensor& db) override;

  Svd svd(const Tensor& w) override;

 private:
  ThreadLibraries& libraries() const { return ThreadLibraries::current(device_index_); }

  int device_index_;
};

/// The largest power of two, up to `at_most`, that divides the address. Tensors come aligned to 256 bytes,
/// but a slice of one may start anywhere, and the fastest algorithms must not be chosen for that.
inline std::int64_t alignment_of(const Tensor& t, std::int64_t at_most) {
  const auto address = reinterpret_cast<std::uintptr_t>(t.raw());
  return std::min(at_most, static_cast<std::int64_t>(address & (~address + 1)));
}

/// Null where the tensor is undefined.
inline void* address_of(const Tensor& t) { return t.defined() ? t.raw() : nullptr; }

}  // namespace ab::cuda
