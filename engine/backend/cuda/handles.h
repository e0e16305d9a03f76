#pragma once
// SPDX-License-Identifier: MIT
//
// Owners for the handles of the CUDA libraries. Destructors cannot report a failure, and at the end of a
// process the driver may be gone already: what the destroy functions return is dropped.

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn_graph.h>
#include <cusolverDn.h>

#include <memory>
#include <type_traits>

namespace ab::cuda {

template <auto destroy> struct Destroy {
  template <class T> void operator()(T* handle) const { (void)destroy(handle); }
};
/// `Handle` is a pointer type, as all handles of these libraries are.
template <class Handle, auto destroy>
using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, Destroy<destroy>>;

using Stream = Owned<cudaStream_t, cudaStreamDestroy>;
using Event = Owned<cudaEvent_t, cudaEventDestroy>;
using CapturedGraph = Owned<cudaGraph_t, cudaGraphDestroy>;
using ExecutableGraph = Owned<cudaGraphExec_t, cudaGraphExecDestroy>;
using PinnedBuffer = Owned<void*, cudaFreeHost>;
using CublasLtHandle = Owned<cublasLtHandle_t, cublasLtDestroy>;
using CublasLtMatmulDesc = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using CublasLtMatrixLayout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using CublasLtMatmulPreference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;
using CudnnHandle = Owned<cudnnHandle_t, cudnnDestroy>;
using CusolverHandle = Owned<cusolverDnHandle_t, cusolverDnDestroy>;
using CusolverParams = Owned<cusolverDnParams_t, cusolverDnDestroyParams>;

}  // namespace ab::cuda
