// SPDX-License-Identifier: MIT
#include "engine/device/cuda/check.h"

namespace ab::cuda {

std::string describe(cudaError_t status) {
  return fmt::format("CUDA: {} ({})", cudaGetErrorName(status), cudaGetErrorString(status));
}

void throw_failed_call(const char* call, const std::string& description) {
  throw Error(ErrorKind::communication, fmt::format("the GPU reported an error: {}, in {}", description, call));
}

}  // namespace ab::cuda
