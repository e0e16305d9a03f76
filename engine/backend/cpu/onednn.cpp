// SPDX-License-Identifier: MIT
#include "engine/backend/cpu/onednn.h"

#include <oneapi/dnnl/dnnl.h>

#include <cstdlib>
#include <string_view>

#include "engine/backend/cpu/gemm.h"
#include "engine/core/check.h"

namespace ab::cpu {

const dnnl::engine& onednn_engine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

dnnl::stream& onednn_stream() {
  thread_local dnnl::stream stream(onednn_engine());
  return stream;
}

namespace {

/// Processors of Intel since Sapphire Rapids multiply bfloat16 by AVX512-BF16 more slowly than float32 (bench/RESULTS.md, Emerald
/// Rapids). They have AMX for it, which virtual machines may hide.
bool avx512_bf16_is_slow() {
#ifdef __x86_64__
  return __builtin_cpu_is("intel") && !__builtin_cpu_is("cooperlake");
#else
  return false;
#endif
}

}  // namespace

const char* native_bfloat16() {
  static const char* const unit = [] {
    const auto has = [isa = static_cast<int>(dnnl::get_effective_cpu_isa())](dnnl::cpu_isa wanted) {
      return (isa & static_cast<int>(wanted)) == static_cast<int>(wanted);
    };
    if (has(dnnl::cpu_isa::avx512_core_amx)) return "AMX";
    const char* const limit = std::getenv("ONEDNN_MAX_CPU_ISA");
    const bool is_wanted = !avx512_bf16_is_slow() || (limit && limit == std::string_view("AVX512_CORE_BF16"));
    return has(dnnl::cpu_isa::avx512_core_bf16) && is_wanted ? "AVX512-BF16" : nullptr;
  }();
  return unit;
}

void gemm_strided(bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, float alpha,
                  const float* a, std::int64_t a_stride, const float* b, std::int64_t b_stride, float beta, float* c,
                  std::int64_t c_stride) {
  const dnnl_status_t status = dnnl_sgemm(transpose_a ? 'T' : 'N', transpose_b ? 'T' : 'N', m, n, k, alpha, a, a_stride,
                                          b, b_stride, beta, c, c_stride);
  AB_CHECK_KIND(communication, status != dnnl_out_of_memory,
                "out of memory in a product of matrices; lower --batch-size");
  AB_ASSERT(status == dnnl_success);
}

}  // namespace ab::cpu
