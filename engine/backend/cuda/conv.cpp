// SPDX-License-Identifier: MIT
#include "engine/backend/cuda/conv.h"

#include <algorithm>

#include "engine/backend/cuda/gemm.h"
#include "engine/core/precision.h"

namespace ab::cuda {
namespace {

/// Over P pixels:   y[P,O] = x wᵀ     dx[P,I] = dy w     dW[O,I] = dyᵀ x
void pointwise_conv(ThreadContext& context, const Conv2dSpec& spec, ConvDirection direction, const Tensor& x,
                    const Tensor& w, const Tensor& y) {
  const Tensor x2 = x.view({-1, spec.in_channels}), y2 = y.view({-1, spec.out_channels});
  const Tensor w2 = w.view({spec.out_channels, spec.in_channels});
  switch (direction) {
    case ConvDirection::forward: return gemm(context, {.transpose_b = true}, x2, w2, y2);
    case ConvDirection::backward_data: return gemm(context, {}, y2, w2, x2);
    case ConvDirection::backward_weight: return gemm(context, {.transpose_a = true}, y2, x2, w2);
  }
}

}  // namespace

void conv2d(ThreadContext& context, const Conv2dSpec& spec, ConvDirection direction, const Tensor& x,
            const Tensor& w, const Tensor& y) {
  if (y.numel() == 0) {
    if (direction == ConvDirection::backward_weight) w.set_zero();
    return;
  }
  // cuDNN computes float32 in NCHW and copies NHWC to and fro; a matrix product needs neither.
  if (spec.is_pointwise()) return pointwise_conv(context, spec, direction, x, w, y);

  constexpr std::int64_t kAlignment = 16;
  const std::int64_t alignment =
      std::min({alignment_of(x, kAlignment), alignment_of(w, kAlignment), alignment_of(y, kAlignment)});
  const bool tf32 = y.dtype() == DType::float32 && tf32_allowed();
  const CudnnConv& plan = context.conv({spec, direction, y.dtype(), alignment, tf32});
  plan.execute(context.cudnn(), x.raw(), w.raw(), y.raw(), context.workspace(plan.workspace_bytes()));
}

}  // namespace ab::cuda
