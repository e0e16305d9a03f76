// SPDX-License-Identifier: MIT
//
// Vendor mathematics of the device of shapes: results of the right shape, and a count of the operations that they stand for.
#include "engine/backend/backend.h"
#include "engine/device/shapes/flops.h"

namespace ab {
namespace {

thread_local std::int64_t flops = 0;

void check_elements(const char* operation, const Tensor& t, std::int64_t elements) {
  if (t.numel() == elements) return;
  throw Bug(fmt::format("bug in abtrain: {} of {} elements was given {}", operation, elements, t.shape().str()));
}

class ShapesBackend final : public Backend {
 public:
  void gemm(const GemmSpec& spec, const Tensor& a, const Tensor& b, const Tensor& c, const Epilogue&) override {
    const std::int64_t m = a.dim(spec.transpose_a ? 1 : 0), k = a.dim(spec.transpose_a ? 0 : 1);
    const std::int64_t n = b.dim(spec.transpose_b ? 0 : 1);
    check_elements("a product with a matrix", b, k * n);
    check_elements("a product", c, m * n);
    flops += 2 * m * n * k;
  }
  void gemm_backward_weight(const Tensor& dy, const Tensor& x, const Tensor& dw, const Tensor&) override {
    check_elements("the gradient of a weight", dw, dy.dim(-1) * x.dim(-1));
    flops += 2 * dw.numel() * (dy.numel() / dy.dim(-1));
  }
  void batched_gemm(const BatchedGemmSpec& spec, const Tensor&, const Tensor&, const Tensor&) override {
    flops += 2 * spec.outer * spec.inner * spec.m * spec.n * spec.k;
  }
  void conv2d_forward(const Conv2dSpec& spec, const Tensor& x, const Tensor& w, const Epilogue&,
                      const Tensor& y) override {
    convolve(spec, x, w, y);
  }
  void conv2d_backward_data(const Conv2dSpec& spec, const Tensor& dy, const Tensor& w, const Tensor& dx,
                            const Epilogue&) override {
    convolve(spec, dx, w, dy);
  }
  void conv2d_backward_weight(const Conv2dSpec& spec, const Tensor& dy, const Tensor& x, const Tensor& dw,
                              const Tensor&) override {
    convolve(spec, x, dw, dy);
  }
  Svd svd(const Tensor& w, SvdMethod) override {
    const std::int64_t m = w.dim(0), n = w.dim(1);
    // What the Gram route takes on a CPU.
    const Tensor w64({m, n}, DType::float64, w.device()), y({m, n}, DType::float64, w.device());
    const Tensor gram({n, n}, DType::float64, w.device()), vectors({n, n}, DType::float64, w.device());
    return {Tensor({m, n}, w.dtype(), w.device()), Tensor({n}, w.dtype(), w.device()),
            Tensor({n, n}, w.dtype(), w.device())};
  }

 private:
  static void convolve(const Conv2dSpec& spec, const Tensor& x, const Tensor& w, const Tensor& y) {
    const std::int64_t positions = spec.batch * spec.out_height() * spec.out_width();
    check_elements("images", x, spec.batch * spec.height * spec.width * spec.in_channels);
    check_elements("filters", w, spec.out_channels * spec.kernel_h * spec.kernel_w * spec.in_channels / spec.groups);
    check_elements("the result of a convolution", y, positions * spec.out_channels);
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
