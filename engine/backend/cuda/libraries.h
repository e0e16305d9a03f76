#pragma once
// SPDX-License-Identifier: MIT
//
// cuBLASLt, cuDNN and cuSOLVER, with calls that AB_CUDA (engine/device/cuda/runtime.h) checks and handles that have owners.

#include <cublasLt.h>
#include <cudnn_graph.h>
#include <cusolverDn.h>

#include "engine/device/cuda/runtime.h"

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

using CublasLtHandle = Owned<cublasLtHandle_t, cublasLtDestroy>;
using CublasLtMatmulDesc = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using CublasLtMatrixLayout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using CublasLtMatmulPreference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;
using CudnnHandle = Owned<cudnnHandle_t, cudnnDestroy>;
using CusolverHandle = Owned<cusolverDnHandle_t, cusolverDnDestroy>;
using CusolverParams = Owned<cusolverDnParams_t, cusolverDnDestroyParams>;

}  // namespace ab::cuda
