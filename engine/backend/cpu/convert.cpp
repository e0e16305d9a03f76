// SPDX-License-Identifier: MIT
#include "engine/backend/cpu/convert.h"

#include "engine/backend/exec.h"

namespace ab::cpu {

Tensor to_float32(const Tensor& x) {
  if (!x.defined()) return {};
  const Tensor y(x.shape());
  for_each_index(x.device(), x.numel(),
                 [in = x.data<bfloat16>(), out = y.data<float>()](std::int64_t i) { out[i] = in[i]; });
  return y;
}

void round_to_bfloat16(const Tensor& from, const Tensor& to) {
  for_each_index(to.device(), to.numel(),
                 [in = from.data<float>(), out = to.data<bfloat16>()](std::int64_t i) { out[i] = in[i]; });
}

}  // namespace ab::cpu
