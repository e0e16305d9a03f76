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

/// Of all three, zero means success.
template <class Status>
requires requires(Status status) { describe(status); }
void check_status(Status status, const char* call) {
  if (status != Status{}) [[unlikely]]
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
