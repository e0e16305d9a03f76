// SPDX-License-Identifier: MIT
#include "engine/ops/pool.h"

#include "engine/kernels/pool.h"
#include "engine/ops/elementwise.h"

namespace ab {
namespace {

void check_image(std::string_view operation, const Tensor& x) {
  AB_CHECK(x.rank() == 4 && x.numel() > 0, "{}: expected x [N, H, W, C], got {}", operation, x.shape().str());
}

PoolSpec pool_spec(std::string_view operation, const Tensor& x, const Pool2dOptions& options) {
  check_image(operation, x);
  const auto [kernel, stride, padding] = options;
  AB_CHECK(kernel > 0 && kernel <= 16 && stride > 0 && padding >= 0 && padding <= kernel / 2,
           "{}: kernel {} must be in [1, 16], stride {} positive and padding {} at most half the kernel", operation,
           kernel, stride, padding);
  AB_CHECK(x.dim(1) + 2 * padding >= kernel && x.dim(2) + 2 * padding >= kernel,
           "{}: the kernel {} is larger than the padded image of x {}", operation, kernel, x.shape().str());
  return {x.dim(0), x.dim(3), PoolWindows::regular(x.dim(1), kernel, stride, padding),
          PoolWindows::regular(x.dim(2), kernel, stride, padding)};
}

}  // namespace

Var max_pool2d(const Var& x, const Pool2dOptions& options) {
  const PoolSpec spec = pool_spec("max_pool2d", x.value(), options);
  const MaxPoolResult result = max_pool_forward(x.value(), spec);
  return record("max_pool2d", result.y, {x}, [spec, winner = result.winner](const Tensor& dy) {
    return Gradients{max_pool_backward(dy, winner, spec)};
  });
}

Var avg_pool2d(const Var& x, const Pool2dOptions& options) {
  const PoolSpec spec = pool_spec("avg_pool2d", x.value(), options);
  return record("avg_pool2d", avg_pool_forward(x.value(), spec), {x},
                [spec](const Tensor& dy) { return Gradients{avg_pool_backward(dy, spec)}; });
}

Var adaptive_avg_pool2d(const Var& x, std::int64_t out_h, std::int64_t out_w) {
  check_image("adaptive_avg_pool2d", x.value());
  AB_CHECK(out_h > 0 && out_w > 0, "adaptive_avg_pool2d: the output size {} x {} must be positive", out_h, out_w);
  const PoolSpec spec{x.shape()[0], x.shape()[3], PoolWindows::adaptive(x.shape()[1], out_h),
                      PoolWindows::adaptive(x.shape()[2], out_w)};
  return record("adaptive_avg_pool2d", avg_pool_forward(x.value(), spec), {x},
                [spec](const Tensor& dy) { return Gradients{avg_pool_backward(dy, spec)}; });
}

Var global_avg_pool2d(const Var& x) { return flatten(adaptive_avg_pool2d(x, 1, 1)); }

}  // namespace ab
