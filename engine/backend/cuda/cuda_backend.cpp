// SPDX-License-Identifier: MIT
//
// Wires the GPU's vendor mathematics into the Backend interface.

#include <memory>
#include <vector>

#include "engine/backend/backend.h"
#include "engine/backend/cuda/cuda_backend.h"
#include "engine/device/device.h"

namespace ab {
namespace {

using cuda::ThreadLibraries;

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(int device_index) : device_index_(device_index) {}

  void gemm(const GemmSpec& spec, const Tensor& a, const Tensor& b, const Tensor& c,
            const Epilogue& epilogue) override {
    cuda::gemm(libraries(), spec, a, b, c, epilogue);
  }
  void gemm_backward_weight(const Tensor& dy, const Tensor& x, const Tensor& dw, const Tensor& db) override {
    cuda::gemm_backward_weight(libraries(), dy, x, dw, db);
  }
  void batched_gemm(const BatchedGemmSpec& spec, const Tensor& a, const Tensor& b, const Tensor& c) override {
    cuda::batched_gemm(libraries(), spec, a, b, c);
  }

  bool has_fused_attention(const AttentionSpec& spec) override { return cuda::has_fused_attention(libraries(), spec); }
  void attention_forward(const AttentionSpec& spec, const Tensor& qkv, const Tensor& y,
                         const Tensor& log_sums) override {
    cuda::attention_forward(libraries(), spec, qkv, y, log_sums);
  }
  void attention_backward(const AttentionSpec& spec, const AttentionBackward& of, const Tensor& dqkv) override {
    cuda::attention_backward(libraries(), spec, of, dqkv);
  }

  void conv2d_forward(const Conv2dSpec& spec, const Tensor& x, const Tensor& w, const Epilogue& epilogue,
                      const Tensor& y) override {
    cuda::conv2d_forward(libraries(), spec, x, w, epilogue, y);
  }
  Tensor conv2d_forward_summed(const Conv2dSpec& spec, const Tensor& x, const Tensor& w, const Tensor& bias,
                               const Tensor& y) override {
    return cuda::conv2d_forward_summed(libraries(), spec, x, w, bias, y);
  }
  void conv2d_backward_data(const Conv2dSpec& spec, const Tensor& dy, const Tensor& w, const Tensor& dx,
                            const Epilogue& epilogue) override {
    cuda::conv2d_backward_data(libraries(), spec, dy, w, dx, epilogue);
  }
  void conv2d_backward_weight(const Conv2dSpec& spec, const Tensor& dy, const Tensor& x, const Tensor& dw,
                              const Tensor& db) override {
    cuda::conv2d_backward_weight(libraries(), spec, dy, x, dw, db);
  }

  Svd svd(const Tensor& w) override { return cuda::svd(libraries(), w); }

 private:
  ThreadLibraries& libraries() const { return ThreadLibraries::current(device_index_); }

  int device_index_;
};

}  // namespace

Backend& cuda_backend(int device_index) {
  check_cuda_device(device_index);
  static const auto backends = [] {
    std::vector<std::unique_ptr<CudaBackend>> list;
    for (int i = 0; i < cuda_device_count(); ++i) list.push_back(std::make_unique<CudaBackend>(i));
    return list;
  }();
  return *backends[static_cast<std::size_t>(device_index)];
}

}  // namespace ab
