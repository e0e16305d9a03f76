// SPDX-License-Identifier: MIT
#include "engine/backend/cuda/gemm.h"

#include "engine/kernels/elementwise.h"

namespace ab::cuda {

void gemm(ThreadContext& context, const GemmSpec& spec, const Tensor& a, const Tensor& b, const Tensor& c) {
  constexpr std::int64_t kAlignment = 256;
  GemmKey key;
  key.transpose_a = spec.transpose_a;
  key.transpose_b = spec.transpose_b;
  key.m = c.dim(0);
  key.n = c.dim(1);
  key.k = spec.transpose_a ? a.dim(0) : a.dim(1);
  key.dtype = c.dtype();
  if (c.numel() == 0) return;
  if (key.k == 0) return spec.beta == 0.0f ? c.set_zero() : scale_in_place(c, spec.beta);

  key.align_a = static_cast<std::uint32_t>(alignment_of(a, kAlignment));
  key.align_b = static_cast<std::uint32_t>(alignment_of(b, kAlignment));
  key.align_c = static_cast<std::uint32_t>(alignment_of(c, kAlignment));
  const CublasLtGemm& plan = context.gemm(key);
  plan.execute(context.cublaslt(), spec.alpha, a.raw(), b.raw(), spec.beta, c.raw(),
               context.workspace(plan.workspace_bytes()), context.stream());
}

}  // namespace ab::cuda
