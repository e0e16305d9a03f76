// SPDX-License-Identifier: MIT
#include "engine/backend/cuda/cuda_backend.h"

#include <algorithm>

#include "engine/backend/cuda/cudnn_graph.h"
#include "engine/backend/cuda/thread_libraries.h"
#include "engine/core/precision.h"
#include "engine/kernels/activation.h"
#include "engine/kernels/batch_norm.h"
#include "engine/kernels/reduce.h"

namespace ab::cuda {
namespace {

/// cuDNN has plans ready for a bias with a ReLU; a GELU is a pass of our own. Plans are told to keep a NaN through their
/// ReLU (cudnn_graph.cpp). Should FusedReluOnCpuAndGpu.KeepsNan fail on a GPU, they do not: then only Activation::none
/// may be fused, and the bias still is.
constexpr bool may_be_fused(Activation activation) {
  return activation == Activation::none || activation == Activation::relu;
}

/// For a training batch norm that comes next: plans with `sums` save it from reading y.
void take_moments(const Tensor& y, const Tensor& sums) {
  const Shape per_channel{y.dim(-1)};
  const Tensor mean = Tensor::zeros(per_channel, DType::float32, y.device()), var = mean.clone();
  batch_moments(y, sums, 1e-5, mean, var, 0.1);
}

/// Pointwise convolutions are matrix products: cuDNN computes float32 in NCHW and copies NHWC to and fro; a product
/// needs neither. Over P pixels:   y[P,O] = x wᵀ     dx[P,I] = dy w     dW[O,I] = dyᵀ x
void multiply_pixels(const Conv2dSpec& spec, const Tensor& x, const Tensor& w, const Epilogue& epilogue,
                     const Tensor& y) {
  backend(y.device())
      .gemm({.transpose_b = true}, x.view({-1, spec.in_channels}), w.view({spec.out_channels, spec.in_channels}),
            y.view({-1, spec.out_channels}), epilogue);
}

/// Runs the plan that the thread keeps for this call, made and chosen at first use. The epilogue is that of the tensor
/// which the direction writes. `sums` receives those of y if that plan brings them; a pointwise convolution has a matrix product
/// in place of plans without them.
void run_cudnn(ThreadLibraries& libraries, const Conv2dSpec& spec, ConvDirection direction, const Tensor& x,
               const Tensor& w, const Tensor& y, const Epilogue& epilogue, Tensor* sums = nullptr) {
  std::int64_t alignment = kCudnnAlignment;
  for (const Tensor* t : {&x, &w, &y, &epilogue.bias, &epilogue.grad.saved})
    if (t->defined()) alignment = std::min(alignment, alignment_of(*t, kCudnnAlignment));
  const bool tf32 = y.dtype() == DType::float32 && tf32_allowed();
  CudnnConvKey key{spec, direction, y.dtype(), alignment, tf32, epilogue.bias.defined(), epilogue.activation};
  key.choice = plan_choice();
  key.has_sums = sums != nullptr;
  // Compiled for seconds, and not always faster than a pass of our own.
  if (key.choice == PlanChoice::timed) key.grad = epilogue.grad.activation;
  CudnnConv& conv = libraries.conv(key);
  const bool may_have_sums = sums && (conv.has_sums() || conv.candidates() > 1);
  const Tensor totals = may_have_sums ? Tensor({2, spec.out_channels}, DType::float32, y.device()) : Tensor();
  const CudnnConvData data{x.raw(),
                           w.raw(),
                           y.raw(),
                           address_of(epilogue.bias),
                           address_of(epilogue.grad.saved),
                           may_have_sums ? totals.data<float>() : nullptr};
  const Tensor& written = direction == ConvDirection::backward_data ? x : y;
  const auto run = [&](std::size_t i) {
    if (conv.is_product(i)) return multiply_pixels(spec, x, w, epilogue, y);
    conv.execute(libraries.cudnn(), data, libraries.stream().workspace(conv.workspace_bytes(i)), i);
    if (!conv.is_fused(i)) apply_epilogue(written, epilogue);
  };
  // A product chooses among algorithms of its own, before it is timed itself.
  if (conv.is_product() && conv.candidates() > 1 && !libraries.stream().capture()) run(0);
  keep_fastest(conv, libraries, [&](std::size_t i) {
    run(i);
    if (sums) take_moments(y, conv.has_sums(i) ? totals : Tensor());
  });
  run(0);
  if (conv.has_sums()) *sums = totals;
}

}  // namespace

void CudaBackend::conv2d_forward(const Conv2dSpec& spec, const Tensor& x, const Tensor& w, const Epilogue& epilogue,
                                 const Tensor& y) {
  if (y.numel() == 0) return;
  if (!spec.is_pointwise()) {
    const bool in_two_steps = !may_be_fused(epilogue.activation);
    const Epilogue first = in_two_steps ? Epilogue{.bias = epilogue.bias} : epilogue;
    run_cudnn(libraries(), spec, ConvDirection::forward, x, w, epilogue.before_activation(y), first);
    if (in_two_steps) apply_epilogue(y, epilogue.without_bias());
    return;
  }
  multiply_pixels(spec, x, w, epilogue, y);
}

Tensor CudaBackend::conv2d_forward_summed(const Conv2dSpec& spec, const Tensor& x, const Tensor& w, const Tensor& bias,
                                          const Tensor& y) {
  Tensor sums;
  if (y.numel() == 0) conv2d_forward(spec, x, w, {bias}, y);
  else run_cudnn(libraries(), spec, ConvDirection::forward, x, w, y, {bias}, &sums);
  return sums;
}

void CudaBackend::conv2d_backward_data(const Conv2dSpec& spec, const Tensor& dy, const Tensor& w, const Tensor& dx,
                                       const Epilogue& epilogue) {
  if (dx.numel() == 0) return;
  if (!spec.is_pointwise()) {
    run_cudnn(libraries(), spec, ConvDirection::backward_data, dx, w, dy, {.grad = epilogue.grad});
    return apply_epilogue(dx, {.addend = epilogue.addend});
  }
  gemm({}, dy.view({-1, spec.out_channels}), w.view({spec.out_channels, spec.in_channels}),
       dx.view({-1, spec.in_channels}), epilogue);
}

void CudaBackend::conv2d_backward_weight(const Conv2dSpec& spec, const Tensor& dy, const Tensor& x, const Tensor& dw,
                                         const Tensor& db) {
  if (spec.is_pointwise() && dy.numel() > 0)
    return gemm_backward_weight(dy.view({-1, spec.out_channels}), x.view({-1, spec.in_channels}),
                                dw.view({spec.out_channels, spec.in_channels}), db);
  if (db.defined()) column_sums(dy, db);
  if (dy.numel() == 0) return dw.set_zero();
  run_cudnn(libraries(), spec, ConvDirection::backward_weight, x, dw, dy, {});
}

}  // namespace ab::cuda
