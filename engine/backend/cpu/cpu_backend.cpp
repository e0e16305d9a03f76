// SPDX-License-Identifier: MIT
//
// Wires the CPU's vendor mathematics into the Backend interface, and chooses by element type: float32 runs natively, bfloat16
// where the processor multiplies it, other 16-bit floats through float32 copies, float64 convolutions as plain loops.

#include "engine/backend/backend.h"
#include "engine/backend/cpu/conv.h"
#include "engine/backend/cpu/gemm.h"
#include "engine/backend/cpu/svd.h"
#include "engine/kernels/activation.h"
#include "engine/kernels/reduce.h"

namespace ab {
namespace {

using cpu::ConvDirection;

/// False, with nothing written, for 16-bit types that the chosen algorithm does not take.
bool convolve(const Conv2dSpec& spec, ConvDirection direction, const cpu::ConvTensors& t) {
  if (t.type() != DType::float32 && t.type() != DType::bfloat16) return false;
  return cpu::run_conv(cpu::select_conv(spec, direction, t.type()), spec, direction, t) ||
         cpu::conv_direct(spec, direction, t);
}

class CpuBackend final : public Backend {
 public:
  void gemm(const GemmSpec& spec, const Tensor& a, const Tensor& b, const Tensor& c,
            const Epilogue& epilogue) override {
    cpu::gemm(spec, a, b, c, epilogue);
  }
  DType weight_gradient_type(const Tensor& dy) override { return cpu::weight_gradient_type(dy.dtype()); }
  void gemm_backward_weight(const Tensor& dy, const Tensor& x, const Tensor& dw, const Tensor& db) override {
    cpu::gemm({.transpose_a = true}, dy, x, dw, {});
    if (db.defined()) column_sums(dy, db);
  }
  void batched_gemm(const BatchedGemmSpec& spec, const Tensor& a, const Tensor& b, const Tensor& c) override {
    cpu::batched_gemm(spec, a, b, c);
  }

  void conv2d_forward(const Conv2dSpec& spec, const Tensor& x, const Tensor& w, const Epilogue& epilogue,
                      const Tensor& y) override {
    if (y.numel() == 0) return;
    const Tensor &bias = epilogue.bias, v = epilogue.before_activation(y);
    if (y.dtype() == DType::float64) {
      cpu::conv2d_forward_loops(spec, x.data<double>(), w.data<double>(),
                                bias.defined() ? bias.data<double>() : nullptr, v.data<double>());
    } else if (!convolve(spec, ConvDirection::forward, {x, w, bias, v})) {
      const Tensor v32(y.shape());
      convolve(spec, ConvDirection::forward, {cpu::to_float32(x), cpu::to_float32(w), cpu::to_float32(bias), v32});
      cpu::round_from_float32(v32, v);
    }
    apply_epilogue(y, epilogue.without_bias());
  }

  void conv2d_backward_data(const Conv2dSpec& spec, const Tensor& dy, const Tensor& w, const Tensor& dx,
                            const Epilogue& epilogue) override {
    if (dx.numel() == 0) return;
    if (dx.dtype() == DType::float64) {
      cpu::conv2d_backward_data_loops(spec, dy.data<double>(), w.data<double>(), dx.data<double>());
    } else if (!convolve(spec, ConvDirection::backward_data, {dx, w, {}, dy})) {
      const Tensor dx32(dx.shape());
      convolve(spec, ConvDirection::backward_data, {dx32, cpu::to_float32(w), {}, cpu::to_float32(dy)});
      cpu::round_from_float32(dx32, dx);
    }
    apply_epilogue(dx, epilogue);
  }

  void conv2d_backward_weight(const Conv2dSpec& spec, const Tensor& dy, const Tensor& x, const Tensor& dw,
                              const Tensor& db) override {
    if (db.defined()) column_sums(dy, db);
    if (dy.numel() == 0) return dw.set_zero();
    if (dw.dtype() == DType::float64)
      return cpu::conv2d_backward_weight_loops(spec, dy.data<double>(), x.data<double>(), dw.data<double>());
    const bool is_rounded = dw.dtype() != DType::float32;
    const Tensor dw32 = is_rounded ? Tensor(dw.shape()) : dw;
    if (!convolve(spec, ConvDirection::backward_weight, {x, dw32, {}, dy}))
      convolve(spec, ConvDirection::backward_weight, {cpu::to_float32(x), dw32, {}, cpu::to_float32(dy)});
    if (is_rounded) cpu::round_from_float32(dw32, dw);
  }

  Svd svd(const Tensor& w, SvdMethod method) override { return cpu::svd(w, method); }
};

}  // namespace

Backend& cpu_backend() {
  static CpuBackend instance;  // has no state: what is kept belongs to threads (cpu/conv.h, cpu/onednn_*.cpp)
  return instance;
}

}  // namespace ab
