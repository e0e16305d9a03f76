// SPDX-License-Identifier: MIT
#include "engine/kernels/rank_order_reduce.h"

#include <algorithm>
#include <array>

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
  int ranks;
};

template <class T, class Combine> void reduce_on_host(const Buffers& buffers, compute_t<T> divisor) {
  using C = compute_t<T>;
  alignas(64) std::array<C, kBlock> block;
  C* const sum = block.data();
  for (std::int64_t begin = 0; begin < buffers.count; begin += kBlock) {
    const std::int64_t n = std::min(kBlock, buffers.count - begin);
    const auto values_of = [&](const void* source) { return static_cast<const T*>(source) + begin; };
    const T* const first = values_of(buffers.sources[0]);
    for (std::int64_t i = 0; i < n; ++i) sum[i] = static_cast<C>(first[i]);
    for (const void* source : buffers.sources.subspan(1)) {
      const T* const values = values_of(source);
      for (std::int64_t i = 0; i < n; ++i) sum[i] = Combine{}(sum[i], static_cast<C>(values[i]));
    }
    if (divisor != C{1})
      for (std::int64_t i = 0; i < n; ++i) sum[i] /= divisor;
    for (void* destination : buffers.destinations) {
      T* const out = static_cast<T*>(destination) + begin;
      for (std::int64_t i = 0; i < n; ++i) out[i] = static_cast<T>(sum[i]);
    }
  }
}

template <class T, class Combine> void reduce_on_device(Device device, const Buffers& buffers, compute_t<T> divisor) {
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
  using C = compute_t<T>;
  const C divisor = op == ReduceOp::mean ? static_cast<C>(buffers.ranks) : C{1};
  const auto reduce = [&]<class Combine>() {
    if (device.kind == DeviceKind::cpu) reduce_on_host<T, Combine>(buffers, divisor);
    else reduce_on_device<T, Combine>(device, buffers, divisor);
  };
  if (op == ReduceOp::max) reduce.template operator()<kernels::LargerOfRanks>();
  else reduce.template operator()<kernels::AddRank>();
}

}  // namespace

void reduce_in_rank_order(Device device, DType dtype, ReduceOp op, std::span<const void* const> sources,
                          std::span<void* const> destinations, std::int64_t count, int ranks) {
  if (count == 0) return;
  const Buffers buffers{sources, destinations, count, ranks > 0 ? ranks : static_cast<int>(sources.size())};
  switch (dtype) {
    case DType::float32: return reduce_typed<float>(device, op, buffers);
    case DType::bfloat16: return reduce_typed<bfloat16>(device, op, buffers);
    case DType::float16: return reduce_typed<float16>(device, op, buffers);
    case DType::float64: return reduce_typed<double>(device, op, buffers);
    case DType::int64: return reduce_typed<std::int64_t>(device, op, buffers);
    case DType::uint8: AB_ASSERT(!"bytes are not reduced");
  }
}

}  // namespace ab
