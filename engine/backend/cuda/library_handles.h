#pragma once
// SPDX-License-Identifier: MIT
//
// Owners for the handles of cuBLASLt, cuDNN and cuSOLVER.

#include <cublasLt.h>
#include <cudnn_graph.h>
#include <cusolverDn.h>

#include "engine/device/cuda/handles.h"

namespace ab::cuda {

using CublasLtHandle = Owned<cublasLtHandle_t, cublasLtDestroy>;
using CublasLtMatmulDesc = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using CublasLtMatrixLayout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using CublasLtMatmulPreference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;
using CudnnHandle = Owned<cudnnHandle_t, cudnnDestroy>;
using CusolverHandle = Owned<cusolverDnHandle_t, cusolverDnDestroy>;
using CusolverParams = Owned<cusolverDnParams_t, cusolverDnDestroyParams>;

}  // namespace ab::cuda
