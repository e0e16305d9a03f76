// SPDX-License-Identifier: MIT
#include "engine/kernels/random.h"

namespace ab {

void fill_uniform(const Tensor& t, double low, double high, Philox random) {
  AB_CHECK(low <= high, "fill_uniform: the range [{}, {}) is empty", low, high);
  dispatch_float(t.dtype(), "fill_uniform", [&]<class T>() {
    for_each_index(t.device(), t.numel(),
                   kernels::FillUniform<T>{t.data<T>(), static_cast<float>(low),
                                           static_cast<float>(high - low), random});
  });
}

void fill_normal(const Tensor& t, double mean, double deviation, Philox random) {
  AB_CHECK(deviation >= 0, "fill_normal: the standard deviation {} is negative", deviation);
  dispatch_float(t.dtype(), "fill_normal", [&]<class T>() {
    for_each_index(
        t.device(), t.numel(),
        kernels::FillNormal<T>{t.data<T>(), static_cast<float>(mean), static_cast<float>(deviation), random});
  });
}

}  // namespace ab
