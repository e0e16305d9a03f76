// SPDX-License-Identifier: MIT
#include "engine/device/cuda/handles.h"

#include "engine/device/cuda/check.h"

namespace ab::cuda {

Stream make_stream() {
  cudaStream_t stream = nullptr;
  AB_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return Stream(stream);
}

Event make_event() {
  cudaEvent_t event = nullptr;
  AB_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  return Event(event);
}

Event make_timed_event() {
  cudaEvent_t event = nullptr;
  AB_CUDA(cudaEventCreate(&event));
  return Event(event);
}

}  // namespace ab::cuda
