// SPDX-License-Identifier: MIT
#include "engine/backend/cuda/plan_timer.h"

#include <limits>

#include "engine/backend/cuda/check.h"

namespace ab::cuda {
namespace {

// Launches between two looks at the clock, so that what the host takes to issue one is hidden behind the others.
constexpr int kLaunches = 5;

Event make_event() {
  cudaEvent_t event = nullptr;
  AB_CUDA(cudaEventCreate(&event));
  return Event(event);
}

}  // namespace

double milliseconds(cudaStream_t stream, const std::function<void()>& work) {
  const Event start = make_event(), end = make_event();
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

bool is_capturing(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  AB_CUDA(cudaStreamIsCapturing(stream, &status));
  return status != cudaStreamCaptureStatusNone;
}

}  // namespace ab::cuda
