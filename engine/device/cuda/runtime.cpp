// SPDX-License-Identifier: MIT
#include "engine/device/cuda/runtime.h"

namespace ab::cuda {

std::string describe(cudaError_t status) {
  return fmt::format("CUDA: {} ({})", cudaGetErrorName(status), cudaGetErrorString(status));
}

void throw_failed_call(const char* call, const std::string& description) {
  throw Error(ErrorKind::communication, fmt::format("the GPU reported an error: {}, in {}", description, call));
}

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
