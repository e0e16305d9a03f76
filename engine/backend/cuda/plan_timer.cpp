// SPDX-License-Identifier: MIT
#include "engine/backend/cuda/plan_timer.h"

#include <limits>

#include "engine/backend/cuda/libraries.h"
#include "engine/device/cuda/runtime.h"

namespace ab::cuda {
namespace {

// Launches between two looks at the clock, so that what the host takes to issue one is hidden behind the others.
constexpr int kLaunches = 5;

}  // namespace

double milliseconds(cudaStream_t stream, const std::function<void()>& work) {
  const Event start = make_timed_event(), end = make_timed_event();
  AB_CUDA(cudaEventRecord(start.get(), stream));
  try {
    for (int launch = 0; launch < kLaunches; ++launch) work();
  } catch (const Error&) {
    return std::numeric_limits<double>::infinity();
  }
  AB_CUDA(cudaEventRecord(end.get(), stream));
  AB_CUDA(cudaEventSynchronize(end.get()));
  float elapsed = 0;
  AB_CUDA(cudaEventElapsedTime(&elapsed, start.get(), end.get()));
  return elapsed / kLaunches;
}

}  // namespace ab::cuda
