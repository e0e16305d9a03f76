// SPDX-License-Identifier: MIT
#include "engine/backend/cuda/cuda_backend.h"

#include <cstddef>

#include "engine/backend/cuda/cudnn_graph.h"
#include "engine/backend/cuda/thread_libraries.h"
#include "engine/core/precision.h"
#include "engine/kernels/activation.h"
#include "engine/kernels/elementwise.h"
#include "engine/kernels/reduce.h"

namespace ab::cuda {
namespace {

/// The matrices of a batched product as launches see them: one of the two loops is left to the caller.
struct LaunchGrid {
  std::byte* first;
  std::int64_t loop_bytes;
  GemmStrides strides;

  LaunchGrid(const Tensor& t, const MatrixGrid& grid, bool loop_inner)
      : first(static_cast<std::byte*>(t.raw()) + grid.offset * element(t)),
        loop_bytes((loop_inner ? grid.inner_stride : grid.outer_stride) * element(t)),
        strides{grid.row_stride, loop_inner ? grid.outer_stride : grid.inner_stride} {}

  static std::int64_t element(const Tensor& t) { return static_cast<std::int64_t>(size_of(t.dtype())); }
  std::byte* at(std::int64_t i) const { return first + i * loop_bytes; }
  /// Bytes, up to 256, that divide the address of every launch.
  std::uint32_t alignment() const {
    const auto bits = reinterpret_cast<std::uintptr_t>(first) | static_cast<std::uintptr_t>(loop_bytes) | 256u;
    return static_cast<std::uint32_t>(bits & (~bits + 1));
  }
};

bool multiplies_as_tf32(const Tensor& c) { return c.dtype() == DType::float32 && tf32_allowed(); }

/// cuBLASLt may read and write biases in vectors.
bool is_aligned(const Tensor& bias) { return bias.defined() && alignment_of(bias, kBiasAlignment) == kBiasAlignment; }

/// C = α op(A) op(B) + (β C, or `addend` where that is defined), and what `epilogue` adds to that. `finish(is_fused)` does
/// what remains: all of it, unless cuBLASLt has it fused.
template <class Finish>
void run(ThreadLibraries& libraries, const GemmSpec& spec, cublasLtEpilogue_t epilogue, const Tensor& a,
         const Tensor& b, const Tensor& c, const Tensor& bias, const Tensor& addend, const Finish& finish) {
  constexpr std::int64_t kAlignment = 256;
  AB_ASSERT(a.dtype() == c.dtype() && b.dtype() == c.dtype());
  GemmKey key;
  key.transpose_a = spec.transpose_a;
  key.transpose_b = spec.transpose_b;
  key.m = c.dim(0);
  key.n = c.dim(1);
  key.k = spec.transpose_a ? a.dim(0) : a.dim(1);
  key.dtype = c.dtype();
  key.tf32 = multiplies_as_tf32(c);
  key.epilogue = epilogue;
  key.choice = plan_choice();
  if (c.numel() == 0) return finish(false);
  if (key.k == 0) {
    spec.beta == 0.0f ? c.set_zero() : scale_in_place(c, spec.beta);
    apply_epilogue(c, {.addend = addend});
    return finish(false);
  }

  key.align_a = static_cast<std::uint32_t>(alignment_of(a, kAlignment));
  key.align_b = static_cast<std::uint32_t>(alignment_of(b, kAlignment));
  key.align_c =
      static_cast<std::uint32_t>(alignment_of(c, addend.defined() ? alignment_of(addend, kAlignment) : kAlignment));
  CublasLtGemm& gemm = libraries.gemm(key);
  const auto execute = [&](std::size_t i) {
    gemm.execute(libraries.cublaslt(), spec.alpha, a.raw(), b.raw(), addend.defined() ? 1.0 : spec.beta,
                 addend.defined() ? addend.raw() : c.raw(), c.raw(), address_of(bias),
                 libraries.stream().workspace(gemm.workspace_bytes(i)), libraries.stream().handle(), i);
    finish(gemm.is_fused(i));
  };
  // An addend of C must be added once.
  if (spec.beta == 0.0f) keep_fastest(gemm, libraries, execute);
  execute(0);
}

/// The product by cuBLASLt, which is asked for the bias; an activation is a pass of our own.
void run_cublaslt(ThreadLibraries& libraries, const GemmSpec& spec, const Tensor& a, const Tensor& b, const Tensor& c,
                  const Epilogue& epilogue) {
  const cublasLtEpilogue_t fusible = is_aligned(epilogue.bias) ? kAddBias : kNoEpilogue;
  Epilogue rest = epilogue;
  rest.addend = {};
  run(libraries, spec, fusible, a, b, epilogue.before_activation(c), epilogue.bias, epilogue.addend,
      [&](bool has_bias) { apply_epilogue(c, has_bias ? rest.without_bias() : rest); });
}

/// Whether cuDNN may be asked for the product with its activation.
bool may_be_fused(const GemmSpec& spec, const Tensor& c, const Epilogue& epilogue) {
  const bool has_activation = epilogue.activation != Activation::none || epilogue.grad.defined();
  const bool is_plain = spec.alpha == 1.0f && spec.beta == 0.0f;
  return has_activation && is_plain && c.dtype() != DType::float64 && plan_choice() == PlanChoice::timed;
}

CudnnMatmulKey matmul_key(const GemmSpec& spec, const Tensor& a, const Tensor& b, const Tensor& c,
                          const Epilogue& epilogue) {
  CudnnMatmulKey key{.transpose_a = spec.transpose_a, .transpose_b = spec.transpose_b};
  key.m = c.dim(0);
  key.n = c.dim(1);
  key.k = spec.transpose_a ? a.dim(0) : a.dim(1);
  key.dtype = c.dtype();
  key.alignment = kCudnnAlignment;
  for (const Tensor* t : {&a, &b, &c, &epilogue.bias, &epilogue.z, &epilogue.grad.saved})
    if (t->defined()) key.alignment = std::min(key.alignment, alignment_of(*t, kCudnnAlignment));
  key.tf32 = multiplies_as_tf32(c);
  key.has_bias = epilogue.bias.defined();
  key.stores_z = epilogue.z.defined();
  key.activation = epilogue.activation;
  key.grad = epilogue.grad.activation;
  return key;
}

}  // namespace

void CudaBackend::gemm(const GemmSpec& spec, const Tensor& a, const Tensor& b, const Tensor& c,
                       const Epilogue& epilogue) {
  ThreadLibraries& libraries = this->libraries();
  epilogue.check(c);
  AB_ASSERT(!epilogue.addend.defined() || spec.beta == 0.0f);
  const auto separate = [&] { run_cublaslt(libraries, spec, a, b, c, epilogue); };
  if (!may_be_fused(spec, c, epilogue) || c.numel() == 0 || a.numel() == 0) return separate();

  CudnnMatmul& matmul = libraries.matmul(matmul_key(spec, a, b, c, epilogue));
  const CudnnMatmulData data{
      a.raw(), b.raw(), c.raw(), address_of(epilogue.bias), address_of(epilogue.z), address_of(epilogue.grad.saved)};
  const auto execute = [&](std::size_t i) {
    if (!matmul.is_fused(i)) return separate();
    matmul.execute(libraries.cudnn(), data, libraries.stream().workspace(matmul.workspace_bytes()));
  };
  // The way without cuDNN chooses among algorithms of its own, before it is timed itself.
  if (matmul.candidates() > 1 && !libraries.stream().capture()) separate();
  keep_fastest(matmul, libraries, execute);
  execute(0);
}

void CudaBackend::gemm_backward_weight(const Tensor& dy, const Tensor& x, const Tensor& dw, const Tensor& db) {
  const cublasLtEpilogue_t epilogue = is_aligned(db) ? kBiasGradient : kNoEpilogue;
  run(libraries(), {.transpose_a = true}, epilogue, dy, x, dw, db, {}, [&](bool has_sums) {
    if (db.defined() && !has_sums) column_sums(dy, db);
  });
}

void CudaBackend::batched_gemm(const BatchedGemmSpec& spec, const Tensor& a, const Tensor& b, const Tensor& c) {
  AB_ASSERT(a.dtype() == c.dtype() && b.dtype() == c.dtype());
  ThreadLibraries& libraries = this->libraries();
  const bool loop_inner = spec.inner <= spec.outer;
  const LaunchGrid from_a(a, spec.a, loop_inner), from_b(b, spec.b, loop_inner), to_c(c, spec.c, loop_inner);
  const GemmKey key{.transpose_a = spec.transpose_a,
                    .transpose_b = spec.transpose_b,
                    .m = spec.m,
                    .n = spec.n,
                    .k = spec.k,
                    .dtype = c.dtype(),
                    .align_a = from_a.alignment(),
                    .align_b = from_b.alignment(),
                    .align_c = to_c.alignment(),
                    .batch = loop_inner ? spec.outer : spec.inner,
                    .strides_a = from_a.strides,
                    .strides_b = from_b.strides,
                    .strides_c = to_c.strides,
                    .tf32 = multiplies_as_tf32(c),
                    .choice = plan_choice()};
  CublasLtGemm& gemm = libraries.gemm(key);
  const auto execute_all = [&](std::size_t candidate) {
    for (std::int64_t i = 0; i < (loop_inner ? spec.inner : spec.outer); ++i)
      gemm.execute(libraries.cublaslt(), spec.alpha, from_a.at(i), from_b.at(i), 0.0, to_c.at(i), to_c.at(i), nullptr,
                   libraries.stream().workspace(gemm.workspace_bytes(candidate)), libraries.stream().handle(),
                   candidate);
  };
  keep_fastest(gemm, libraries, execute_all);
  execute_all(0);
}

}  // namespace ab::cuda
