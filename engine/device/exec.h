#pragma once
// SPDX-License-Identifier: MIT
//
// How our own kernels run. A kernel is a functor; here is the only place that knows there are two processors. On the device
// of shapes, which has no numbers, none runs.
//   for_each_index(device, n, f)     f(i) for i in [0, n), in any order
//   for_each_row(device, rows, k)    k(team, row): a Team works on one row, its lanes striding over it. A kernel that one processor
//                                    never runs `requires` the other's Team, and is not compiled for the first.
// A Team has lane(), size(), barrier(), sum(v), sum_each(v) of an array, max(v), and sum_before(v), of the lanes before this one.
// It is one serial lane on a CPU and a thread block on a GPU; the tests also run it as real threads, so that a missing barrier shows
// without a GPU.
//
//   for (int64_t c = team.lane(); c < channels; c += team.size()) y[c] = …

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "engine/core/dtype.h"

#ifdef __CUDACC__
#include "engine/device/cuda_launch.h"
#endif

namespace ab {

/// The whole team in one lane: how rows run on a CPU.
struct SerialTeam {
  AB_HD int lane() const { return 0; }
  AB_HD int size() const { return 1; }
  AB_HD void barrier() const {}
  template <class T> AB_HD T sum(T v) const { return v; }
  template <class T, int N> AB_HD void sum_each(T (&)[N]) const {}
  template <class T> AB_HD T max(T v) const { return v; }
  template <class T> AB_HD T sum_before(T) const { return T{}; }
};

/// Below this many indices a CPU loop stays on the calling thread: waking the others would cost more.
inline constexpr std::int64_t kParallelGrain = 16384;

/// The loop of a CPU alone, for functors of which nvcc need not make a kernel.
template <class F> void loop_over_indices(std::int64_t n, const F& f, [[maybe_unused]] std::int64_t cost) {
#pragma omp parallel for schedule(static) if (n > 1 && n * cost >= kParallelGrain)
  for (std::int64_t i = 0; i < n; ++i) f(i);
}

/// The same of a GPU alone, for functors of which a CPU need not make a loop.
template <class F>
void launch_over_indices([[maybe_unused]] Device device, [[maybe_unused]] std::int64_t n, [[maybe_unused]] const F& f) {
  AB_ASSERT(device.kind == DeviceKind::cuda);
#ifdef __CUDACC__
  cuda::launch_index(device.index, n, f);
#else
  AB_ASSERT(!"compiled by nvcc");
#endif
}

/// `cost` is the rough number of elements an index touches; it only decides whether threads are woken.
template <class F> void for_each_index(Device device, std::int64_t n, const F& f, std::int64_t cost = 1) {
  if (device.kind == DeviceKind::shapes) return;
  if (device.kind == DeviceKind::cpu) loop_over_indices(n, f, cost);
  else launch_over_indices(device, n, f);
}

/// `row_cost` is the rough number of elements a row touches; it only decides whether threads are woken.
template <class K>
void for_each_row(Device device, std::int64_t rows, [[maybe_unused]] std::int64_t row_cost, const K& kernel) {
#ifdef __CUDACC__
  if constexpr (std::is_invocable_v<const K&, const cuda::BlockTeam&, std::int64_t>)
    if (device.kind == DeviceKind::cuda) return cuda::launch_rows(device.index, rows, row_cost, kernel);
#endif
  if (device.kind == DeviceKind::shapes) return;
  AB_ASSERT(device.kind == DeviceKind::cpu);
  constexpr bool on_cpu = std::is_invocable_v<const K&, SerialTeam&, std::int64_t>;
  AB_ASSERT(on_cpu);
  if constexpr (on_cpu) {
#pragma omp parallel for schedule(static) if (rows > 1 && rows * row_cost >= kParallelGrain)
    for (std::int64_t row = 0; row < rows; ++row) {
      SerialTeam team;
      kernel(team, row);
    }
  }
}

}  // namespace ab
