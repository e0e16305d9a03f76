// SPDX-License-Identifier: MIT
//
// Stands in for engine/backend/cuda in builds that emulate a GPU (CMake option AB_EMULATE_GPU), for tests of
// everything that has to keep host and device memory apart. The vendor mathematics is the CPU's, on copies in host
// memory; kernels run as loops (exec.h); so results equal the CPU's to the last bit. Nothing is asynchronous here.

#include "engine/backend/backend.h"
#include "engine/backend/cuda/device.h"
#include "engine/backend/emulated_gpu/arena.h"

namespace ab {
namespace {

class EmulatedBackend final : public Backend {
 public:
  explicit EmulatedBackend(int device_index) : device_{DeviceKind::cuda, device_index} {}

  void gemm(const GemmSpec& spec, const Tensor& a, const Tensor& b, const Tensor& c,
            const Epilogue& epilogue) override {
    const Tensor result = on_host(c);
    cpu_backend().gemm(spec, on_host(a), on_host(b), result, on_host(epilogue));
    c.copy_from(result);
  }
  void gemm_backward_weight(const Tensor& dy, const Tensor& x, const Tensor& dw, const Tensor& db) override {
    const Tensor result = on_host(dw), sums = on_host(db);
    cpu_backend().gemm_backward_weight(on_host(dy), on_host(x), result, sums);
    dw.copy_from(result);
    if (db.defined()) db.copy_from(sums);
  }
  void batched_gemm(const BatchedGemmSpec& spec, const Tensor& a, const Tensor& b, const Tensor& c) override {
    const Tensor result = on_host(c);
    cpu_backend().batched_gemm(spec, on_host(a), on_host(b), result);
    c.copy_from(result);
  }

  void conv2d_forward(const Conv2dSpec& spec, const Tensor& x, const Tensor& w, const Epilogue& epilogue,
                      const Tensor& y) override {
    const Tensor result = on_host(y);
    cpu_backend().conv2d_forward(spec, on_host(x), on_host(w), on_host(epilogue), result);
    y.copy_from(result);
  }
  void conv2d_backward_data(const Conv2dSpec& spec, const Tensor& dy, const Tensor& w, const Tensor& dx) override {
    const Tensor result = on_host(dx);
    cpu_backend().conv2d_backward_data(spec, on_host(dy), on_host(w), result);
    dx.copy_from(result);
  }
  void conv2d_backward_weight(const Conv2dSpec& spec, const Tensor& dy, const Tensor& x, const Tensor& dw,
                              const Tensor& db) override {
    const Tensor result = on_host(dw), sums = on_host(db);
    cpu_backend().conv2d_backward_weight(spec, on_host(dy), on_host(x), result, sums);
    dw.copy_from(result);
    if (db.defined()) db.copy_from(sums);
  }

  Svd svd(const Tensor& w, SvdMethod method) override {
    const Svd result = cpu_backend().svd(w.to(Device{}), method);  // the host waits for it on a real GPU too
    return {result.u.to(device_), result.s.to(device_), result.vt.to(device_)};
  }

  void synchronize() override { emulated_gpu::arena(device_.index).count_host_wait(); }

 private:
  Tensor on_host(const Tensor& tensor) const {
    if (!tensor.defined()) return tensor;
    AB_ASSERT(tensor.device() == device_);
    const Tensor host(tensor.shape(), tensor.dtype());
    emulated_gpu::arena(device_.index).read(host.raw(), tensor.raw(), tensor.bytes());
    return host;
  }
  Epilogue on_host(const Epilogue& epilogue) const { return {on_host(epilogue.bias), epilogue.activation}; }

  Device device_;
};

}  // namespace

int cuda_device_count() { return 2; }
std::string cuda_unavailable_reason() { return {}; }

Backend& cuda_backend(int device_index) {
  static EmulatedBackend backends[] = {EmulatedBackend(0), EmulatedBackend(1)};
  check_cuda_device(device_index);
  return backends[device_index];
}

}  // namespace ab
