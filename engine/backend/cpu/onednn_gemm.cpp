// SPDX-License-Identifier: MIT
#include <oneapi/dnnl/dnnl.h>

#include "engine/backend/cpu/gemm.h"

namespace ab::cpu {

void sgemm_strided(bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, float alpha,
                   const float* a, std::int64_t a_stride, const float* b, std::int64_t b_stride, float beta, float* c,
                   std::int64_t c_stride) {
  const dnnl_status_t status = dnnl_sgemm(transpose_a ? 'T' : 'N', transpose_b ? 'T' : 'N', m, n, k, alpha, a, a_stride,
                                          b, b_stride, beta, c, c_stride);
  AB_CHECK_KIND(communication, status != dnnl_out_of_memory,
                "out of memory in a product of matrices; lower --batch-size");
  AB_ASSERT(status == dnnl_success);
}

}  // namespace ab::cpu
