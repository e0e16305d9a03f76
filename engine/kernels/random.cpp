// SPDX-License-Identifier: MIT
#include "engine/kernels/random.h"

#include "engine/kernels/map.h"

namespace ab {

void fill_uniform(const Tensor& t, double low, double high, Philox random) {
  AB_CHECK(low <= high, "fill_uniform: the range [{}, {}) is empty", low, high);
  const kernels::Uniform f{static_cast<float>(low), static_cast<float>(high - low), random};
  dispatch_float(t.dtype(), "fill_uniform", [&]<class T>() { map(t.device(), t.numel(), t.data<T>(), f); });
}

void fill_normal(const Tensor& t, double mean, double deviation, Philox random) {
  AB_CHECK(deviation >= 0, "fill_normal: the standard deviation {} is negative", deviation);
  const kernels::Normal f{static_cast<float>(mean), static_cast<float>(deviation), random};
  dispatch_float(t.dtype(), "fill_normal", [&]<class T>() { map(t.device(), t.numel(), t.data<T>(), f); });
}

}  // namespace ab
