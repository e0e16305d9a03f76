// SPDX-License-Identifier: MIT
#include "engine/backend/cuda/conv.h"

#include <algorithm>

#include "engine/backend/cuda/gemm.h"
#include "engine/backend/cuda/plan_timer.h"
#include "engine/core/precision.h"
#include "engine/kernels/epilogue.h"
#include "engine/kernels/reduce.h"

namespace ab::cuda {
namespace {

/// Runs the plan that the thread keeps for this call, made and chosen at first use.
void run_cudnn(ThreadContext& context, const Conv2dSpec& spec, ConvDirection direction, const Tensor& x,
               const Tensor& w, const Tensor& y, const Epilogue& epilogue) {
  constexpr std::int64_t kAlignment = 16;
  std::int64_t alignment = kAlignment;
  for (const Tensor* t : {&x, &w, &y, &epilogue.bias})
    if (t->defined()) alignment = std::min(alignment, alignment_of(*t, kAlignment));
  const bool tf32 = y.dtype() == DType::float32 && tf32_allowed();
  CudnnConv& conv = context.conv({spec, direction, y.dtype(), alignment, tf32, epilogue.bias.defined(),
                                  epilogue.activation, plan_choice()});
  const CudnnConvData data{x.raw(), w.raw(), y.raw(), epilogue.bias.defined() ? epilogue.bias.raw() : nullptr};
  const auto run = [&](std::size_t i) {
    conv.execute(context.cudnn(), data, context.workspace(conv.workspace_bytes(i)), i);
    if (!conv.is_fused(i)) apply_epilogue(y, epilogue);
  };
  keep_fastest(conv, context, run);
  run(0);
}

}  // namespace

// Pointwise convolutions are matrix products: cuDNN computes float32 in NCHW and copies NHWC to and fro; a product
// needs neither. Over P pixels:   y[P,O] = x wᵀ     dx[P,I] = dy w     dW[O,I] = dyᵀ x

void conv2d_forward(ThreadContext& context, const Conv2dSpec& spec, const Tensor& x, const Tensor& w,
                    const Epilogue& epilogue, const Tensor& y) {
  if (y.numel() == 0) return;
  if (!spec.is_pointwise()) return run_cudnn(context, spec, ConvDirection::forward, x, w, y, epilogue);
  gemm(context, {.transpose_b = true}, x.view({-1, spec.in_channels}), w.view({spec.out_channels, spec.in_channels}),
       y.view({-1, spec.out_channels}), epilogue);
}

void conv2d_backward_data(ThreadContext& context, const Conv2dSpec& spec, const Tensor& dy, const Tensor& w,
                          const Tensor& dx) {
  if (dx.numel() == 0) return;
  if (!spec.is_pointwise()) return run_cudnn(context, spec, ConvDirection::backward_data, dx, w, dy, {});
  gemm(context, {}, dy.view({-1, spec.out_channels}), w.view({spec.out_channels, spec.in_channels}),
       dx.view({-1, spec.in_channels}), {});
}

void conv2d_backward_weight(ThreadContext& context, const Conv2dSpec& spec, const Tensor& dy, const Tensor& x,
                            const Tensor& dw, const Tensor& db) {
  if (spec.is_pointwise() && dy.numel() > 0)
    return gemm_backward_weight(context, dy.view({-1, spec.out_channels}), x.view({-1, spec.in_channels}),
                                dw.view({spec.out_channels, spec.in_channels}), db);
  if (db.defined()) column_sums(dy, db);
  if (dy.numel() == 0) return dw.set_zero();
  run_cudnn(context, spec, ConvDirection::backward_weight, x, dw, dy, {});
}

}  // namespace ab::cuda
