#pragma once
// SPDX-License-Identifier: MIT
//
// The arithmetic of reductions over ranks, shared by all transports: result[i] = ((x0[i] + x1[i]) + x2[i]) + …,
// always in rank order, so that bits depend neither on timing, nor on the transport, nor on the device. 16-bit floats
// are added in float32, and the result is rounded once.

#include <cstdint>
#include <span>

#include "engine/core/dtype.h"

namespace ab {

enum class ReduceOp { sum, mean, max };

/// Reduces `count` elements of type `dtype` (any but uint8) over sources[0], sources[1], … and writes the result to every
/// destination, all in the memory of `device`. A destination may be one of the sources. `mean` divides by `ranks`, or by
/// the number of sources if that is 0.
void reduce_in_rank_order(Device device, DType dtype, ReduceOp op, std::span<const void* const> sources,
                          std::span<void* const> destinations, std::int64_t count, int ranks = 0);

namespace kernels {

struct AddRank {
  template <class T> AB_HD T operator()(T sum, T value) const { return sum + value; }
};
/// A NaN on either side wins: a rank with a broken value must not be hidden by healthy ones.
struct LargerOfRanks {
  template <class T> AB_HD T operator()(T sum, T value) const { return sum != sum || value <= sum ? sum : value; }
};

/// One element on all ranks. `pointers` are those of the sources, then those of the destinations.
template <class T, class Combine> struct RankOrderReduce {
  const std::int64_t* pointers;
  std::int64_t sources, destinations;
  compute_t<T> divisor;

  AB_HD void operator()(std::int64_t i) const {
    using C = compute_t<T>;
    C result = static_cast<C>(pointer(0)[i]);
    for (std::int64_t s = 1; s < sources; ++s) result = Combine{}(result, static_cast<C>(pointer(s)[i]));
    if (divisor != C{1}) result /= divisor;
    for (std::int64_t d = 0; d < destinations; ++d) pointer(sources + d)[i] = static_cast<T>(result);
  }
  AB_HD T* pointer(std::int64_t k) const { return reinterpret_cast<T*>(pointers[k]); }
};

}  // namespace kernels
}  // namespace ab
