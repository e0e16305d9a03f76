// SPDX-License-Identifier: MIT
//
// Stands in for engine/backend/cuda in builds that emulate a GPU (engine/device/emulated_gpu). The vendor mathematics is
// the CPU's, on copies in host memory, and kernels run as loops, so results equal the CPU's to the last bit, but for fused
// attention, of which a CPU has none: its graph is computed in float64. Nothing is asynchronous here.

#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/backend/backend.h"
#include "engine/backend/emulated_gpu/evaluate_graph.h"
#include "engine/device/device.h"
#include "engine/device/emulated_gpu/arena.h"
#include "engine/device/emulated_gpu/capture.h"
#include "engine/kernels/elementwise.h"

namespace ab {
namespace {

/// Elements in device memory as a launch is given them: an address, which does not hold on to the block.
class Operand {
 public:
  explicit Operand(const Tensor& tensor) : shape_(tensor.shape()), dtype_(tensor.dtype()), device_(tensor.device()) {
    if (!tensor.defined()) return;
    AB_ASSERT(device_.kind == DeviceKind::cuda);
    elements_ = tensor.raw();
  }

  /// Undefined where the tensor was.
  Tensor on_host() const {
    if (!elements_) return {};
    const Tensor host(shape_, dtype_);
    emulated_gpu::arena(device_.index).read(host.raw(), elements_, host.bytes());
    return host;
  }
  void take(const Tensor& host) const {
    emulated_gpu::arena(device_.index).copy_from_host(elements_, host.raw(), host.bytes());
  }
  DType dtype() const { return dtype_; }

 private:
  void* elements_ = nullptr;
  Shape shape_;
  DType dtype_;
  Device device_;
};

/// Σ y and Σ y² of every channel, [2, C] float32.
Tensor sums_of_channels(const Tensor& y) {
  const auto channels = static_cast<std::size_t>(y.dim(-1));
  const std::vector<double> values = y.to_doubles();
  std::vector<double> sums(2 * channels);
  for (std::size_t i = 0; i < values.size(); ++i) {
    sums[i % channels] += values[i];
    sums[channels + i % channels] += values[i] * values[i];
  }
  const Tensor result({2, y.dim(-1)}, DType::float32);
  std::copy(sums.begin(), sums.end(), result.data<float>());
  return result;
}

/// What cuDNN would be: the newest whose graphs have been looked at.
constexpr std::size_t kCudnnVersion = 91900;

Tensor in_float64(const Operand& operand) { return cast(operand.on_host(), DType::float64); }

/// `result`, of operand's type.
void take_float64(const Operand& operand, const Tensor& result) { operand.take(cast(result, operand.dtype())); }

/// The same of what an epilogue reads and writes.
class EpilogueOperands {
 public:
  explicit EpilogueOperands(const Epilogue& epilogue)
      : bias_(epilogue.bias),
        z_(epilogue.z),
        saved_(epilogue.grad.saved),
        addend_(epilogue.addend),
        activation_(epilogue.activation),
        of_saved_(epilogue.grad.activation) {}

  Epilogue on_host() const {
    return {bias_.on_host(), activation_, z_.on_host(), {of_saved_, saved_.on_host()}, addend_.on_host()};
  }
  void take(const Epilogue& host) const {
    if (host.z.defined()) z_.take(host.z);
  }

 private:
  Operand bias_, z_, saved_, addend_;
  Activation activation_, of_saved_;
};

class EmulatedBackend final : public Backend {
 public:
  explicit EmulatedBackend(int device_index) : device_{DeviceKind::cuda, device_index} {}

  void gemm(const GemmSpec& spec, const Tensor& a, const Tensor& b, const Tensor& c,
            const Epilogue& epilogue) override {
    issue([spec, a = Operand(a), b = Operand(b), c = Operand(c), rest = EpilogueOperands(epilogue)] {
      const Tensor result = c.on_host();
      const Epilogue on_host = rest.on_host();
      cpu_backend().gemm(spec, a.on_host(), b.on_host(), result, on_host);
      c.take(result);
      rest.take(on_host);
    });
  }
  void gemm_backward_weight(const Tensor& dy, const Tensor& x, const Tensor& dw, const Tensor& db) override {
    issue([dy = Operand(dy), x = Operand(x), dw = Operand(dw), db = Operand(db)] {
      const Tensor result = dw.on_host(), sums = db.on_host();
      cpu_backend().gemm_backward_weight(dy.on_host(), x.on_host(), result, sums);
      dw.take(result);
      if (sums.defined()) db.take(sums);
    });
  }
  void batched_gemm(const BatchedGemmSpec& spec, const Tensor& a, const Tensor& b, const Tensor& c) override {
    issue([spec, a = Operand(a), b = Operand(b), c = Operand(c)] {
      const Tensor result = c.on_host();
      cpu_backend().batched_gemm(spec, a.on_host(), b.on_host(), result);
      c.take(result);
    });
  }

  bool has_fused_attention(const AttentionSpec& spec) override { return can_fuse_attention(spec, kCudnnVersion); }
  void attention_forward(const AttentionSpec& spec, const Tensor& qkv, const Tensor& y,
                         const Tensor& log_sums) override {
    issue([spec, qkv = Operand(qkv), y = Operand(y), log_sums = Operand(log_sums)] {
      const Tensor x = in_float64(qkv), result = in_float64(y), sums = in_float64(log_sums);
      double scale = 1 / std::sqrt(static_cast<double>(spec.width));
      const auto part = [&](int i) { return x.data<double>() + offset_of_part(spec, i); };
      emulated_gpu::evaluate_graph(attention_forward_graph(spec), {{AttentionTensor::q, part(0)},
                                                                   {AttentionTensor::k, part(1)},
                                                                   {AttentionTensor::v, part(2)},
                                                                   {AttentionTensor::y, result.data<double>()},
                                                                   {AttentionTensor::log_sums, sums.data<double>()},
                                                                   {AttentionTensor::scale, &scale}});
      take_float64(y, result);
      take_float64(log_sums, sums);
    });
  }
  void attention_backward(const AttentionSpec& spec, const AttentionBackward& of, const Tensor& dqkv) override {
    issue([spec, dy = Operand(of.dy), qkv = Operand(of.qkv), y = Operand(of.y), log_sums = Operand(of.log_sums),
           dqkv = Operand(dqkv)] {
      const Tensor x = in_float64(qkv), dx = in_float64(dqkv), gradient = in_float64(dy), result = in_float64(y),
                   sums = in_float64(log_sums), row_sums = sums.clone(), dq_sums = result.clone();
      double scale = 1 / std::sqrt(static_cast<double>(spec.width)), one = 1;
      const auto part = [&](const Tensor& packed, int i) { return packed.data<double>() + offset_of_part(spec, i); };
      emulated_gpu::evaluate_graph(attention_backward_graph(spec, false),
                                   {{AttentionTensor::q, part(x, 0)},
                                    {AttentionTensor::k, part(x, 1)},
                                    {AttentionTensor::v, part(x, 2)},
                                    {AttentionTensor::y, result.data<double>()},
                                    {AttentionTensor::log_sums, sums.data<double>()},
                                    {AttentionTensor::scale, &scale},
                                    {AttentionTensor::dy, gradient.data<double>()},
                                    {AttentionTensor::dq, part(dx, 0)},
                                    {AttentionTensor::dk, part(dx, 1)},
                                    {AttentionTensor::dv, part(dx, 2)},
                                    {AttentionTensor::row_sums, row_sums.data<double>()},
                                    {AttentionTensor::dq_sums, dq_sums.data<double>()},
                                    {AttentionTensor::one, &one}});
      take_float64(dqkv, dx);
    });
  }

  void conv2d_forward(const Conv2dSpec& spec, const Tensor& x, const Tensor& w, const Epilogue& epilogue,
                      const Tensor& y) override {
    issue([spec, x = Operand(x), w = Operand(w), rest = EpilogueOperands(epilogue), y = Operand(y)] {
      const Tensor result = y.on_host();
      const Epilogue on_host = rest.on_host();
      cpu_backend().conv2d_forward(spec, x.on_host(), w.on_host(), on_host, result);
      y.take(result);
      rest.take(on_host);
    });
  }
  Tensor conv2d_forward_summed(const Conv2dSpec& spec, const Tensor& x, const Tensor& w, const Tensor& bias,
                               const Tensor& y) override {
    const Tensor sums({2, spec.out_channels}, DType::float32, device_);
    conv2d_forward(spec, x, w, {bias}, y);
    issue([y = Operand(y), sums = Operand(sums)] { sums.take(sums_of_channels(y.on_host())); });
    return sums;
  }
  void conv2d_backward_data(const Conv2dSpec& spec, const Tensor& dy, const Tensor& w, const Tensor& dx,
                            const Epilogue& epilogue) override {
    issue([spec, dy = Operand(dy), w = Operand(w), dx = Operand(dx), rest = EpilogueOperands(epilogue)] {
      const Tensor result = dx.on_host();
      cpu_backend().conv2d_backward_data(spec, dy.on_host(), w.on_host(), result, rest.on_host());
      dx.take(result);
    });
  }
  void conv2d_backward_weight(const Conv2dSpec& spec, const Tensor& dy, const Tensor& x, const Tensor& dw,
                              const Tensor& db) override {
    issue([spec, dy = Operand(dy), x = Operand(x), dw = Operand(dw), db = Operand(db)] {
      const Tensor result = dw.on_host(), sums = db.on_host();
      cpu_backend().conv2d_backward_weight(spec, dy.on_host(), x.on_host(), result, sums);
      dw.take(result);
      if (sums.defined()) db.take(sums);
    });
  }

  Svd svd(const Tensor& w, SvdMethod method) override {
    const Svd result = cpu_backend().svd(w.to(Device{}), method);  // the host waits for it on a real GPU too
    return {result.u.to(device_), result.s.to(device_), result.vt.to(device_)};
  }

 private:
  void issue(const std::function<void()>& work) const {
    if (emulated_gpu::capturing(device_)) return emulated_gpu::capture(work);
    work();
  }

  Device device_;
};

}  // namespace

Backend& cuda_backend(int device_index) {
  static EmulatedBackend backends[] = {EmulatedBackend(0), EmulatedBackend(1)};
  check_cuda_device(device_index);
  return backends[device_index];
}

}  // namespace ab
