// SPDX-License-Identifier: MIT
//
// Wires the CPU's vendor mathematics into the Backend interface, and chooses by element type: float32 runs natively, bfloat16
// where the processor multiplies it, other 16-bit floats through float32 copies.

#include "engine/backend/backend.h"
#include "engine/backend/cpu/conv.h"
#include "engine/backend/cpu/gemm.h"
#include "engine/kernels/activation.h"
#include "engine/kernels/elementwise.h"
#include "engine/kernels/reduce.h"

namespace ab {
namespace {

/// False, with nothing written, for 16-bit types that the chosen algorithm does not take.
bool convolve(const Conv2dSpec& spec, ConvDirection direction, const cpu::ConvTensors& t) {
  if (t.type() == DType::float16) return false;
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
    if (!convolve(spec, ConvDirection::forward, {x, w, bias, v})) {
      const Tensor v32(y.shape());
      convolve(spec, ConvDirection::forward,
               {cast(x, DType::float32), cast(w, DType::float32), cast(bias, DType::float32), v32});
      cast_into(v, v32);
    }
    apply_epilogue(y, epilogue.without_bias());
  }

  void conv2d_backward_data(const Conv2dSpec& spec, const Tensor& dy, const Tensor& w, const Tensor& dx,
                            const Epilogue& epilogue) override {
    if (dx.numel() == 0) return;
    if (!convolve(spec, ConvDirection::backward_data, {dx, w, {}, dy})) {
      const Tensor dx32(dx.shape());
      convolve(spec, ConvDirection::backward_data, {dx32, cast(w, DType::float32), {}, cast(dy, DType::float32)});
      cast_into(dx, dx32);
    }
    apply_epilogue(dx, epilogue);
  }

  void conv2d_backward_weight(const Conv2dSpec& spec, const Tensor& dy, const Tensor& x, const Tensor& dw,
                              const Tensor& db) override {
    if (db.defined()) column_sums(dy, db);
    if (dy.numel() == 0) return dw.set_zero();
    const bool is_rounded = size_of(dw.dtype()) == 2;
    const Tensor dw32 = is_rounded ? Tensor(dw.shape()) : dw;
    if (!convolve(spec, ConvDirection::backward_weight, {x, dw32, {}, dy}))
      convolve(spec, ConvDirection::backward_weight, {cast(x, DType::float32), dw32, {}, cast(dy, DType::float32)});
    if (is_rounded) cast_into(dw, dw32);
  }

  Svd svd(const Tensor& w) override { return cpu::svd(w); }
};

}  // namespace

Backend& cpu_backend() {
  static CpuBackend instance;  // has no state: what is kept belongs to threads (cpu/conv.h, cpu/onednn_*.cpp)
  return instance;
}

}  // namespace ab
