#pragma once
// SPDX-License-Identifier: MIT
//
// AB_CUDA(call) throws ab::Error when a call of the CUDA runtime fails. The error names the runtime's own message and
// the call, as written:
//
//   AB_CUDA(cudaStreamSynchronize(stream));
//
// engine/backend/cuda/library_check.h adds the vendors' libraries.

#include <cuda_runtime_api.h>

#include <string>

#include "engine/core/check.h"

namespace ab::cuda {

/// The runtime's words for a status: "CUDA: cudaErrorInvalidValue (invalid argument)".
std::string describe(cudaError_t status);

/// Throws Error(communication): the kind of everything that a device refuses.
[[noreturn]] void throw_failed_call(const char* call, const std::string& description);

inline void check_status(cudaError_t status, const char* call) {
  if (status == cudaSuccess) [[likely]]
    return;
  (void)cudaGetLastError();  // the runtime keeps an error until it is asked for: a later launch would be blamed for it
  throw_failed_call(call, describe(status));
}

}  // namespace ab::cuda

#define AB_CUDA(call) ::ab::cuda::check_status((call), #call)
