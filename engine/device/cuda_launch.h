#pragma once
// SPDX-License-Identifier: MIT
//
// The GPU half of exec.h: how a kernel functor becomes a CUDA kernel on the calling thread's stream. Included
// by exec.h in files that nvcc compiles, and by nothing else. Every kernel file pays for what stands here, so
// no library headers: reductions are warp shuffles and one exchange through shared memory.

#include <algorithm>
#include <cstdint>
#include <limits>

#include "engine/core/check.h"
#include "engine/device/device.h"

namespace ab::cuda {

inline constexpr int kIndexBlock = 256;
inline constexpr int kMinRowBlock = 32, kRowBlock = 256, kMaxRowBlock = 512;
inline constexpr int kWarp = 32;
/// Blocks of a grid-stride loop per multiprocessor: enough to fill it and even out the tail.
inline constexpr int kBlocksPerMultiprocessor = 16;

/// A thread block that works on one row. All lanes must reach barrier(), sum(), sum_each() and max() together; sums are
/// taken in a fixed order, so they repeat bit for bit.
class BlockTeam {
 public:
  static constexpr int kMostSums = 8;  // of four bytes, or half as many of eight
  static constexpr int kScratchBytes = kMaxRowBlock / kWarp * kMostSums * static_cast<int>(sizeof(float));

  __device__ explicit BlockTeam(void* scratch) : scratch_(scratch) {}

  __device__ int lane() const { return static_cast<int>(threadIdx.x); }
  __device__ int size() const { return static_cast<int>(blockDim.x); }
  __device__ void barrier() const { __syncthreads(); }
  template <class T> __device__ T sum(T v) const {
    return reduce(v, [](T a, T b) { return a + b; });
  }
  /// Each v[k] becomes its sum, all of them in one exchange.
  template <class T, int N> __device__ void sum_each(T (&v)[N]) const {
    static_assert(N * sizeof(T) <= kMostSums * sizeof(float), "an exchange has room for so many sums per warp");
    for (int k = 0; k < N; ++k)
      for (int distance = kWarp / 2; distance > 0; distance /= 2) v[k] += __shfl_xor_sync(0xffffffffu, v[k], distance);
    if (size() == kWarp) return;

    T(*of_warp)[N] = static_cast<T(*)[N]>(scratch_);
    if (lane() % kWarp == 0)
      for (int k = 0; k < N; ++k) of_warp[lane() / kWarp][k] = v[k];
    barrier();
    for (int k = 0; k < N; ++k) v[k] = of_warp[0][k];
    for (int warp = 1; warp < size() / kWarp; ++warp)
      for (int k = 0; k < N; ++k) v[k] += of_warp[warp][k];
    barrier();  // the next exchange writes here again
  }
  template <class T> __device__ T max(T v) const {
    return reduce(v, [](T a, T b) { return a < b ? b : a; });
  }
  template <class T> __device__ T sum_before(T v) const {
    T sum = v;  // with those before it in the warp
    for (int distance = 1; distance < kWarp; distance *= 2) {
      const T before = __shfl_up_sync(0xffffffffu, sum, distance);
      if (lane() % kWarp >= distance) sum += before;
    }
    if (size() == kWarp) return sum - v;

    T* of_warp = static_cast<T*>(scratch_);
    if (lane() % kWarp == kWarp - 1) of_warp[lane() / kWarp] = sum;
    barrier();
    for (int warp = 0; warp < lane() / kWarp; ++warp) sum += of_warp[warp];
    barrier();  // the next exchange writes here again
    return sum - v;
  }

 private:
  template <class T, class Combine> __device__ T reduce(T v, Combine combine) const {
    static_assert(sizeof(T) <= sizeof(double), "a reduction exchanges at most eight bytes per warp");
    for (int distance = kWarp / 2; distance > 0; distance /= 2)
      v = combine(v, __shfl_xor_sync(0xffffffffu, v, distance));
    if (size() == kWarp) return v;

    T* of_warp = static_cast<T*>(scratch_);
    if (lane() % kWarp == 0) of_warp[lane() / kWarp] = v;
    barrier();
    v = of_warp[0];
    for (int warp = 1; warp < size() / kWarp; ++warp) v = combine(v, of_warp[warp]);
    barrier();  // the next reduction writes here again
    return v;
  }

  void* scratch_;
};

template <class F> __global__ void __launch_bounds__(kIndexBlock) index_kernel(std::int64_t n, const F f) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kIndexBlock;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kIndexBlock + threadIdx.x; i < n; i += stride) f(i);
}

template <class K> __global__ void __launch_bounds__(kMaxRowBlock, 1) row_kernel(const K kernel) {
  __shared__ alignas(double) unsigned char scratch[BlockTeam::kScratchBytes];
  kernel(BlockTeam(scratch), static_cast<std::int64_t>(blockIdx.x));
}

/// f(i) for i in [0, n), in any order.
template <class F> void launch_index(int device_index, std::int64_t n, const F& f) {
  if (n <= 0) return;
  const LaunchTarget target = launch_target(device_index);
  const std::int64_t wanted = (n + kIndexBlock - 1) / kIndexBlock;
  const std::int64_t most = static_cast<std::int64_t>(target.multiprocessors) * kBlocksPerMultiprocessor;
  index_kernel<<<static_cast<unsigned>(std::min(wanted, most)), kIndexBlock, 0, target.stream>>>(n, f);
  check_launch();
}

/// Elements that a lane of a row kernel takes at a time, if they are of two bytes: one access of 16 bytes. Where rows are so
/// many that each multiprocessor has as many blocks as it can hold, lanes take four of those, and fewer warps wait for others.
inline constexpr int kLaneElements = 8, kBusyLaneElements = 32, kMostBlocksPerMultiprocessor = 32;

/// kernel(team, row) for each row, one block per row. Short rows get small blocks, and rows too few to fill
/// the device get large ones.
template <class K> void launch_rows(int device_index, std::int64_t rows, std::int64_t row_cost, const K& kernel) {
  if (rows <= 0) return;
  const LaunchTarget target = launch_target(device_index);
  const int most = rows < target.multiprocessors ? kMaxRowBlock : kRowBlock;
  const bool busy = rows >= std::int64_t{target.multiprocessors} * kMostBlocksPerMultiprocessor;
  int block = kMinRowBlock;
  while (block < most && block * (busy ? kBusyLaneElements : kLaneElements) < row_cost) block *= 2;
  AB_ASSERT(rows <= std::numeric_limits<int>::max());  // blocks that a grid can have
  row_kernel<<<static_cast<unsigned>(rows), static_cast<unsigned>(block), 0, target.stream>>>(kernel);
  check_launch();
}

}  // namespace ab::cuda
