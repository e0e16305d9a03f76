#pragma once
// SPDX-License-Identifier: MIT
//
// Runs a row kernel as a GPU would, on real threads: one thread per lane, with barriers and reductions. It
// shows strided loops that only work for one lane, and lanes that disagree about calling a reduction, on
// machines without a GPU; under the thread sanitizer also missing barriers.

#include <barrier>
#include <cstring>
#include <thread>
#include <vector>

#include "engine/device/exec.h"

namespace ab {

/// What the lanes of one team share.
struct ThreadTeamState {
  explicit ThreadTeamState(int lanes) : barrier(lanes), slots(static_cast<std::size_t>(lanes)) {}
  std::barrier<> barrier;
  std::vector<double> slots;  // one exchanged value per lane, of any type up to eight bytes
};

class ThreadTeam {
 public:
  ThreadTeam(ThreadTeamState& state, int lane) : state_(state), lane_(lane) {}

  int lane() const { return lane_; }
  int size() const { return static_cast<int>(state_.slots.size()); }
  void barrier() const { state_.barrier.arrive_and_wait(); }
  template <class T> T sum(T v) const {
    return reduce(v, [](T a, T b) { return a + b; });
  }
  template <class T, int N> void sum_each(T (&v)[N]) const {
    for (T& of_lane : v) of_lane = sum(of_lane);
  }
  template <class T> T max(T v) const {
    return reduce(v, [](T a, T b) { return a < b ? b : a; });
  }
  template <class T> T sum_before(T v) const {
    T sum{};
    exchange(v, [&](int lane, T theirs) { sum += lane < lane_ ? theirs : T{}; });
    return sum;
  }

 private:
  template <class T, class Combine> T reduce(T v, Combine combine) const {
    T total{};
    exchange(v, [&](int lane, T theirs) { total = lane == 0 ? theirs : combine(total, theirs); });
    return total;
  }

  /// take(lane, v) for every lane's.
  template <class T, class Take> void exchange(T v, Take take) const {
    static_assert(sizeof(T) <= sizeof(double));
    std::memcpy(&state_.slots[static_cast<std::size_t>(lane_)], &v, sizeof(T));
    barrier();
    for (int lane = 0; lane < size(); ++lane) {
      T theirs;
      std::memcpy(&theirs, &state_.slots[static_cast<std::size_t>(lane)], sizeof(T));
      take(lane, theirs);
    }
    barrier();  // the next exchange writes here again
  }

  ThreadTeamState& state_;
  int lane_;
};

/// kernel(team, row) for each row, by a team of `lanes` threads.
template <class K> void run_rows_in_threads(int lanes, std::int64_t rows, const K& kernel) {
  ThreadTeamState state(lanes);
  std::vector<std::jthread> threads;
  for (int lane = 0; lane < lanes; ++lane)
    threads.emplace_back([&state, &kernel, rows, lane] {
      const ThreadTeam team(state, lane);
      for (std::int64_t row = 0; row < rows; ++row) {
        kernel(team, row);
        team.barrier();
      }
    });
}

}  // namespace ab
