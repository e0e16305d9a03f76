// SPDX-License-Identifier: MIT
#include "engine/kernels/rank_order_reduce.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "engine/core/tensor.h"
#include "engine/device/exec.h"

namespace ab {
namespace {

/// A block of the sum stays in the first-level cache while every source is added to it.
constexpr std::int64_t kBlock = 2048;

struct Buffers {
  std::span<const void* const> sources;
  std::span<void* const> destinations;
  std::int64_t count;
};

template <class T, class Combine> void reduce_on_host(const Buffers& buffers, T divisor) {
  alignas(64) std::array<T, kBlock> sum;
  for (std::int64_t begin = 0; begin < buffers.count; begin += kBlock) {
    const std::int64_t n = std::min(kBlock, buffers.count - begin);
    const std::size_t bytes = static_cast<std::size_t>(n) * sizeof(T);
    std::memcpy(sum.data(), static_cast<const T*>(buffers.sources[0]) + begin, bytes);
    for (const void* source : buffers.sources.subspan(1)) {
      const T* values = static_cast<const T*>(source) + begin;
      T* sums = sum.data();
      for (std::int64_t i = 0; i < n; ++i) sums[i] = Combine{}(sums[i], values[i]);
    }
    if (divisor != T{1})
      for (std::int64_t i = 0; i < n; ++i) sum[static_cast<std::size_t>(i)] /= divisor;
    for (void* destination : buffers.destinations)
      std::memcpy(static_cast<T*>(destination) + begin, sum.data(), bytes);
  }
}

template <class T, class Combine> void reduce_on_device(Device device, const Buffers& buffers, T divisor) {
  std::vector<std::int64_t> addresses;
  for (const void* source : buffers.sources) addresses.push_back(reinterpret_cast<std::int64_t>(source));
  for (void* destination : buffers.destinations) addresses.push_back(reinterpret_cast<std::int64_t>(destination));
  const Tensor pointers = Tensor::from(addresses, {static_cast<std::int64_t>(addresses.size())}, device);
  for_each_index(device, buffers.count,
                 kernels::RankOrderReduce<T, Combine>{pointers.data<std::int64_t>(),
                                                      static_cast<std::int64_t>(buffers.sources.size()),
                                                      static_cast<std::int64_t>(buffers.destinations.size()), divisor});
}

template <class T> void reduce_typed(Device device, ReduceOp op, const Buffers& buffers) {
  const T divisor = op == ReduceOp::mean ? static_cast<T>(buffers.sources.size()) : T{1};
  const auto reduce = [&]<class Combine>() {
    if (device.kind == DeviceKind::cpu) reduce_on_host<T, Combine>(buffers, divisor);
    else reduce_on_device<T, Combine>(device, buffers, divisor);
  };
  if (op == ReduceOp::max) reduce.template operator()<kernels::LargerOfRanks>();
  else reduce.template operator()<kernels::AddRank>();
}

}  // namespace

void reduce_in_rank_order(Device device, DType dtype, ReduceOp op, std::span<const void* const> sources,
                          std::span<void* const> destinations, std::int64_t count) {
  if (count == 0) return;
  const Buffers buffers{sources, destinations, count};
  switch (dtype) {
    case DType::float32: return reduce_typed<float>(device, op, buffers);
    case DType::float64: return reduce_typed<double>(device, op, buffers);
    case DType::int64: return reduce_typed<std::int64_t>(device, op, buffers);
    default: AB_ASSERT(!"reductions take float32, float64 and int64");
  }
}

}  // namespace ab
