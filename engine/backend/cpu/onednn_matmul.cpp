// SPDX-License-Identifier: MIT
//
// Products of bfloat16 by oneDNN.
#include <map>
#include <string_view>
#include <unordered_map>

#include "engine/backend/cpu/gemm.h"
#include "engine/backend/cpu/onednn.h"
#include "engine/core/tensor.h"
#include "engine/core/threads.h"

namespace ab::cpu {
namespace {

using Desc = dnnl::memory::desc;
using Type = dnnl::memory::data_type;

/// Everything that decides which compiled product a call needs; the division of work among threads is compiled in.
struct ProductKey {
  BatchedGemmSpec spec;
  bool has_bias, has_addend, is_float;
  int threads;
  auto operator<=>(const ProductKey&) const = default;
};

/// rows × columns matrices of a grid, whichever way they lie in memory.
Desc matrices(const BatchedGemmSpec& s, const MatrixGrid& grid, std::int64_t rows, std::int64_t columns,
              bool transposed, Type type) {
  const std::int64_t down = transposed ? 1 : grid.row_stride, across = transposed ? grid.row_stride : 1;
  if (s.outer * s.inner == 1) return {{rows, columns}, type, dnnl::memory::dims{down, across}};
  return {
      {s.outer, s.inner, rows, columns}, type, dnnl::memory::dims{grid.outer_stride, grid.inner_stride, down, across}};
}

class CompiledProduct {
 public:
  CompiledProduct(const BatchedGemmSpec& s, bool has_bias, bool has_addend, Type result) {
    const Desc a = matrices(s, s.a, s.m, s.k, s.transpose_a, Type::bf16);
    const Desc b = matrices(s, s.b, s.k, s.n, s.transpose_b, Type::bf16);
    const Desc c = matrices(s, s.c, s.m, s.n, false, result), added = matrices(s, s.c, s.m, s.n, false, Type::bf16);
    const Desc bias = has_bias ? Desc({1, s.n}, Type::bf16, dnnl::memory::dims{s.n, 1}) : Desc();
    dnnl::post_ops after;
    if (s.alpha != 1) append_factor(after, static_cast<float>(s.alpha));
    if (has_addend) after.append_binary(dnnl::algorithm::binary_add, added);
    dnnl::primitive_attr attr = user_scratchpad();
    attr.set_post_ops(after);
#if DNNL_VERSION_MAJOR < 3
    const dnnl::matmul::primitive_desc desc({a, b, bias, c}, attr, onednn_engine());
#else
    const dnnl::matmul::primitive_desc desc(onednn_engine(), a, b, bias, c, attr);
#endif
    is_reference_ = std::string_view(desc.impl_info_str()).starts_with("ref");
    primitive_ = dnnl::matmul(desc);
    for (const auto& [argument, memory] : {std::pair{DNNL_ARG_SRC, a},
                                           {DNNL_ARG_WEIGHTS, b},
                                           {DNNL_ARG_DST, c},
                                           {DNNL_ARG_SCRATCHPAD, desc.scratchpad_desc()}})
      arguments_.emplace(argument, unbound(memory));
    if (has_bias) arguments_.emplace(DNNL_ARG_BIAS, unbound(bias));
    addend_ = DNNL_ARG_ATTR_MULTIPLE_POST_OP(s.alpha != 1) | DNNL_ARG_SRC_1;
    if (has_addend) arguments_.emplace(addend_, unbound(added));
  }

  bool is_reference() const { return is_reference_; }

  void run(const Bfloat16Product& of) {
    const dnnl::memory& pad = arguments_.at(DNNL_ARG_SCRATCHPAD);
    const Tensor scratchpad({static_cast<std::int64_t>(pad.get_desc().get_size())},
                            DType::uint8);  // scratch() may hold a or b
    for (auto& [argument, memory] : arguments_)
      memory.set_data_handle(const_cast<void*>(argument == DNNL_ARG_SRC          ? of.a
                                               : argument == DNNL_ARG_WEIGHTS    ? of.b
                                               : argument == DNNL_ARG_DST        ? of.c
                                               : argument == DNNL_ARG_BIAS       ? of.bias
                                               : argument == DNNL_ARG_SCRATCHPAD ? scratchpad.raw()
                                                                                 : of.addend));
    primitive_.execute(onednn_stream(), arguments_);
  }

 private:
  static void append_factor(dnnl::post_ops& after, float alpha) {
#if DNNL_VERSION_MAJOR < 3
    after.append_eltwise(1.0f, dnnl::algorithm::eltwise_linear, alpha, 0.0f);
#else
    after.append_eltwise(dnnl::algorithm::eltwise_linear, alpha, 0.0f);
#endif
  }

  dnnl::matmul primitive_;
  std::unordered_map<int, dnnl::memory> arguments_;
  int addend_ = 0;
  bool is_reference_ = false;
};

}  // namespace

bool matmul_bfloat16(const BatchedGemmSpec& spec, const Bfloat16Product& of) {
  if (!native_bfloat16() || spec.outer * spec.inner * spec.m * spec.n * spec.k == 0) return false;
  const bool has_bias = of.bias, has_addend = of.addend, is_float = of.type_of_c == DType::float32;
  if (has_bias && spec.alpha != 1) return false;  // which oneDNN would multiply too
  ProductKey key{spec, has_bias, has_addend, is_float, compute_threads()};
  key.spec.a.offset = key.spec.b.offset = key.spec.c.offset = 0;
  thread_local std::map<ProductKey, CompiledProduct> products;
  if (products.size() >= kMostCompiled && !products.contains(key)) products.clear();
  CompiledProduct& product =
      products.try_emplace(key, spec, has_bias, has_addend, is_float ? Type::f32 : Type::bf16).first->second;
  if (product.is_reference()) return false;
  product.run(of);
  return true;
}

}  // namespace ab::cpu
