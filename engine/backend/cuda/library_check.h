#pragma once
// SPDX-License-Identifier: MIT
//
// AB_CUDA (engine/device/cuda/check.h) for calls of cuBLASLt, cuDNN and cuSOLVER.

#include <cublasLt.h>
#include <cudnn_graph.h>
#include <cusolverDn.h>

#include "engine/device/cuda/check.h"

namespace ab::cuda {

/// The library's name and its words for a status: "cuDNN: CUDNN_STATUS_NOT_SUPPORTED (…)".
std::string describe(cublasStatus_t status);
std::string describe(cudnnStatus_t status);
std::string describe(cusolverStatus_t status);

inline void check_status(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS) [[unlikely]]
    throw_failed_call(call, describe(status));
}
inline void check_status(cudnnStatus_t status, const char* call) {
  if (status != CUDNN_STATUS_SUCCESS) [[unlikely]]
    throw_failed_call(call, describe(status));
}
inline void check_status(cusolverStatus_t status, const char* call) {
  if (status != CUSOLVER_STATUS_SUCCESS) [[unlikely]]
    throw_failed_call(call, describe(status));
}

}  // namespace ab::cuda
