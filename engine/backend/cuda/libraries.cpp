// SPDX-License-Identifier: MIT
#include "engine/backend/cuda/libraries.h"

#include <array>

namespace ab::cuda {

std::string describe(cublasStatus_t status) {
  return fmt::format("cuBLASLt: {} ({})", cublasLtGetStatusName(status), cublasLtGetStatusString(status));
}

std::string describe(cudnnStatus_t status) {
  std::array<char, 512> detail{};
  cudnnGetLastErrorString(detail.data(), detail.size());
  if (detail[0] == '\0') return fmt::format("cuDNN: {}", cudnnGetErrorString(status));
  return fmt::format("cuDNN: {} ({})", cudnnGetErrorString(status), detail.data());
}

// cuSOLVER has no function that names its statuses.
std::string describe(cusolverStatus_t status) {
  const char* name = "see cusolver_common.h";
  switch (status) {
    case CUSOLVER_STATUS_NOT_INITIALIZED: name = "not initialised, is the driver recent enough?"; break;
    case CUSOLVER_STATUS_ALLOC_FAILED: name = "out of memory"; break;
    case CUSOLVER_STATUS_INVALID_VALUE: name = "invalid argument"; break;
    case CUSOLVER_STATUS_ARCH_MISMATCH: name = "the device lacks a required feature"; break;
    case CUSOLVER_STATUS_EXECUTION_FAILED: name = "execution failed"; break;
    case CUSOLVER_STATUS_INTERNAL_ERROR: name = "internal error"; break;
    case CUSOLVER_STATUS_NOT_SUPPORTED: name = "not supported"; break;
    default: break;
  }
  return fmt::format("cuSOLVER: status {} ({})", static_cast<int>(status), name);
}

}  // namespace ab::cuda
