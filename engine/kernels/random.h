#pragma once
// SPDX-License-Identifier: MIT
//
// Random contents: element i is a pure function of the generator and i, so that initial weights do not
// depend on the device or on how a tensor is cut.

#include "engine/core/random.h"
#include "engine/core/tensor.h"

namespace ab {

/// t_i uniform in [low, high)
void fill_uniform(const Tensor& t, double low, double high, Philox random);
/// t_i normal with the given mean and standard deviation
void fill_normal(const Tensor& t, double mean, double deviation, Philox random);

namespace kernels {

struct Uniform {
  float low, width;
  Philox random;
  AB_HD float operator()(std::int64_t i) const { return low + width * random.uniform(static_cast<std::uint64_t>(i)); }
};

struct Normal {
  float mean, deviation;
  Philox random;
  AB_HD float operator()(std::int64_t i) const {
    return mean + deviation * random.normal(static_cast<std::uint64_t>(i));
  }
};

}  // namespace kernels
}  // namespace ab
