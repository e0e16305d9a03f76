// SPDX-License-Identifier: MIT
#include "engine/backend/cpu/convert.h"

#include "engine/device/exec.h"

namespace ab::cpu {
namespace {

template <class F> void dispatch_half(DType dtype, const F& f) {
  if (dtype == DType::bfloat16) return f.template operator()<bfloat16>();
  AB_ASSERT(dtype == DType::float16);
  f.template operator()<float16>();
}

}  // namespace

Tensor to_float32(const Tensor& x) {
  if (!x.defined()) return {};
  const Tensor y(x.shape());
  dispatch_half(x.dtype(), [&]<class T>() {
    for_each_index(x.device(), x.numel(),
                   [in = x.data<T>(), out = y.data<float>()](std::int64_t i) { out[i] = in[i]; });
  });
  return y;
}

void round_from_float32(const Tensor& from, const Tensor& to) {
  dispatch_half(to.dtype(), [&]<class T>() {
    for_each_index(to.device(), to.numel(),
                   [in = from.data<float>(), out = to.data<T>()](std::int64_t i) { out[i] = in[i]; });
  });
}

}  // namespace ab::cpu
