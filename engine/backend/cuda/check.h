#pragma once
// SPDX-License-Identifier: MIT
//
// AB_CUDA(call) throws ab::Error when a call of the CUDA runtime, cuBLASLt, cuDNN or cuSOLVER fails. The
// error names the library's own message and the call, as written:
//
//   AB_CUDA(cudaStreamSynchronize(stream));

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn_graph.h>
#include <cusolverDn.h>

#include <string>
#include <type_traits>

#include "engine/core/check.h"

namespace ab::cuda {

/// The library's name and its words for a status: "cuDNN: CUDNN_STATUS_NOT_SUPPORTED (…)".
std::string describe(cudaError_t status);
std::string describe(cublasStatus_t status);
std::string describe(cudnnStatus_t status);
std::string describe(cusolverStatus_t status);

/// Throws Error(communication): the kind of everything that a device refuses.
[[noreturn]] void throw_failed_call(const char* call, const std::string& description);

/// Every one of these libraries numbers success as zero.
template <class Status> void check_status(Status status, const char* call) {
  if (static_cast<int>(status) == 0) [[likely]] return;
  // The runtime keeps an error until it is asked for; unasked, a later launch would be blamed for it.
  if constexpr (std::is_same_v<Status, cudaError_t>) (void)cudaGetLastError();
  throw_failed_call(call, describe(status));
}

}  // namespace ab::cuda

#define AB_CUDA(call) ::ab::cuda::check_status((call), #call)
