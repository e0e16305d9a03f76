// SPDX-License-Identifier: MIT
//
// Vendor mathematics of the device of shapes: results of the right shape, a count of the operations that they stand for, and
// the working memory that the CPU's backend takes for them.
#include "engine/backend/backend.h"
#include "engine/backend/cpu/conv.h"
#include "engine/backend/cpu/gemm.h"
#include "engine/device/shapes/shapes.h"

namespace ab {
namespace {

thread_local std::int64_t flops = 0;

void check_elements(const char* operation, const Tensor& t, std::int64_t elements) {
  if (t.numel() == elements) return;
  throw Bug(fmt::format("bug in abtrain: {} of {} elements was given {}", operation, elements, t.shape().str()));
}

/// While one lives, the float32 copies with which a CPU computes in 16 bits where it does not do so natively.
class Copies {
 public:
  Copies(std::initializer_list<const Tensor*> tensors, bool bfloat16_is_native = cpu::native_bfloat16() != nullptr) {
    for (const Tensor* t : tensors)
      if (t->defined() && t->device().is_like_cpu() && size_of(t->dtype()) == 2 &&
          !(t->dtype() == DType::bfloat16 && bfloat16_is_native))
        copies_.emplace_back(t->shape(), DType::float32, t->device());
  }

 private:
  std::vector<Tensor> copies_;
};

class ShapesBackend final : public Backend {
 public:
  void gemm(const GemmSpec& spec, const Tensor& a, const Tensor& b, const Tensor& c,
            const Epilogue& epilogue) override {
    const std::int64_t m = a.dim(spec.transpose_a ? 1 : 0), k = a.dim(spec.transpose_a ? 0 : 1);
    const std::int64_t n = b.dim(spec.transpose_b ? 0 : 1);
    check_elements("a product with a matrix", b, k * n);
    check_elements("a product", c, m * n);
    const Copies copies{&a, &b, &c, &epilogue.bias, &epilogue.addend};
    flops += 2 * m * n * k;
  }
  DType weight_gradient_type(const Tensor& dy) override {
    return dy.device().is_like_cpu() ? cpu::weight_gradient_type(dy.dtype()) : dy.dtype();
  }
  void gemm_backward_weight(const Tensor& dy, const Tensor& x, const Tensor& dw, const Tensor&) override {
    check_elements("the gradient of a weight", dw, dy.dim(-1) * x.dim(-1));
    const Copies copies{&dy, &x, &dw};
    flops += 2 * dw.numel() * (dy.numel() / dy.dim(-1));
  }
  void batched_gemm(const BatchedGemmSpec& spec, const Tensor& a, const Tensor& b, const Tensor& c) override {
    const Copies copies{&a, &b, &c};
    flops += 2 * spec.outer * spec.inner * spec.m * spec.n * spec.k;
  }
  void conv2d_forward(const Conv2dSpec& spec, const Tensor& x, const Tensor& w, const Epilogue& epilogue,
                      const Tensor& y) override {
    const Copies copies({&x, &w, &y, &epilogue.bias}, cpu::takes_bfloat16(spec, ConvDirection::forward));
    convolve(spec, ConvDirection::forward, x, w, y);
  }
  void conv2d_backward_data(const Conv2dSpec& spec, const Tensor& dy, const Tensor& w, const Tensor& dx,
                            const Epilogue&) override {
    const Copies copies({&dy, &w, &dx}, cpu::takes_bfloat16(spec, ConvDirection::backward_data));
    convolve(spec, ConvDirection::backward_data, dx, w, dy);
  }
  void conv2d_backward_weight(const Conv2dSpec& spec, const Tensor& dy, const Tensor& x, const Tensor& dw,
                              const Tensor&) override {
    const Copies copies({&dy, &x, &dw}, cpu::takes_bfloat16(spec, ConvDirection::backward_weight));
    convolve(spec, ConvDirection::backward_weight, x, dw, dy);
  }
  Svd svd(const Tensor& w) override {
    const std::int64_t m = w.dim(0), n = w.dim(1);
    // What the Gram route takes on a CPU.
    const Tensor w64({m, n}, DType::float64, w.device()), y({m, n}, DType::float64, w.device());
    const Tensor gram({n, n}, DType::float64, w.device()), vectors({n, n}, DType::float64, w.device());
    return {Tensor({m, n}, w.dtype(), w.device()), Tensor({n}, w.dtype(), w.device()),
            Tensor({n, n}, w.dtype(), w.device())};
  }

 private:
  static void convolve(const Conv2dSpec& spec, ConvDirection direction, const Tensor& x, const Tensor& w,
                       const Tensor& y) {
    const std::int64_t positions = spec.batch * spec.out_height() * spec.out_width();
    check_elements("images", x, spec.batch * spec.height * spec.width * spec.in_channels);
    check_elements("filters", w, spec.out_channels * spec.kernel_h * spec.kernel_w * spec.in_channels / spec.groups);
    check_elements("the result of a convolution", y, positions * spec.out_channels);
    if (x.device().is_like_cpu()) {
      const bool is_taken = x.dtype() == DType::bfloat16 && cpu::takes_bfloat16(spec, direction);
      const DType type = is_taken ? DType::bfloat16 : DType::float32;
      const auto chosen = cpu::select_conv(spec, direction, type);
      hold_shapes_scratch(x.device(), cpu::conv_scratch_bytes(chosen, spec, direction, type));
    }
    flops += 2 * positions * w.numel();
  }
};

}  // namespace

Backend& shapes_backend() {
  static ShapesBackend shapes;
  return shapes;
}

std::int64_t shapes_flops() { return flops; }

}  // namespace ab
