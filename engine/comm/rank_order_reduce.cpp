// SPDX-License-Identifier: MIT
#include "engine/comm/rank_order_reduce.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace ab {
namespace {

/// A block of the sum stays in the first-level cache while every source is added to it.
constexpr std::int64_t kBlock = 2048;

template <class T> void accumulate(T* sum, const T* values, std::int64_t n, ReduceOp op) {
  if (op == ReduceOp::max) {
    // A NaN on either side wins: a rank with a broken value must not be hidden by healthy ones.
    for (std::int64_t i = 0; i < n; ++i)
      sum[i] = (sum[i] != sum[i] || values[i] <= sum[i]) ? sum[i] : values[i];
  } else {
    for (std::int64_t i = 0; i < n; ++i) sum[i] += values[i];
  }
}

template <class T>
void reduce_typed(ReduceOp op, std::span<const void* const> sources, std::span<void* const> destinations,
                  std::int64_t count) {
  alignas(64) std::array<T, kBlock> sum;
  const T ranks = static_cast<T>(sources.size());
  for (std::int64_t begin = 0; begin < count; begin += kBlock) {
    const std::int64_t n = std::min(kBlock, count - begin);
    const std::size_t bytes = static_cast<std::size_t>(n) * sizeof(T);
    std::memcpy(sum.data(), static_cast<const T*>(sources[0]) + begin, bytes);
    for (const void* source : sources.subspan(1))
      accumulate(sum.data(), static_cast<const T*>(source) + begin, n, op);
    if (op == ReduceOp::mean)
      for (std::int64_t i = 0; i < n; ++i) sum[static_cast<std::size_t>(i)] /= ranks;
    for (void* destination : destinations)
      std::memcpy(static_cast<T*>(destination) + begin, sum.data(), bytes);
  }
}

}  // namespace

ElementRange part_of_rank(std::int64_t elements, int rank, int ranks) {
  const std::int64_t share = elements / ranks, rest = elements % ranks;
  const auto begin = [&](std::int64_t r) { return r * share + std::min(r, rest); };
  return {begin(rank), begin(rank + 1)};
}

void reduce_in_rank_order(DType dtype, ReduceOp op, std::span<const void* const> sources,
                          std::span<void* const> destinations, std::int64_t count) {
  switch (dtype) {
    case DType::float32: return reduce_typed<float>(op, sources, destinations, count);
    case DType::float64: return reduce_typed<double>(op, sources, destinations, count);
    case DType::int64: return reduce_typed<std::int64_t>(op, sources, destinations, count);
    default: AB_ASSERT(!"reductions take float32, float64 and int64");
  }
}

}  // namespace ab
