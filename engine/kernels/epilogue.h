#pragma once
// SPDX-License-Identifier: MIT
//
// What a matrix product or convolution does to its result, as a pass of its own: for libraries that cannot do it
// while they write.

#include "engine/backend/backend.h"
#include "engine/kernels/lanes.h"

namespace ab {

/// y = activation(y + bias) in place.   y: [..., C], bias: [C]
void apply_epilogue(const Tensor& y, const Epilogue& epilogue);

namespace kernels {

/// One row of y per team; `bias` is not read without kBias.
template <class T, bool kBias, bool kRelu> struct BiasAndActivation {
  using C = compute_t<T>;
  T* y;
  const T* bias;
  std::int64_t columns;

  template <class Team> AB_HD void operator()(const Team& team, std::int64_t row) const {
    T* to = y + row * columns;
    const auto activation = [](C v) { return kRelu && v < 0 ? C{0} : v; };
    if constexpr (kBias)
      lane_map(team, columns, to, [=](C v, C b) { return activation(v + b); }, to, bias);
    else
      lane_map(team, columns, to, activation, to);
  }
};

}  // namespace kernels
}  // namespace ab
