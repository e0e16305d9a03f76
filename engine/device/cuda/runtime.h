#pragma once
// SPDX-License-Identifier: MIT
//
// The CUDA runtime, with calls that are checked and handles that have owners.
//
// AB_CUDA(call) throws ab::Error when a call fails. The error names the runtime's own message and the call, as written:
//
//   AB_CUDA(cudaStreamSynchronize(stream));
//
// Destructors cannot report a failure, and at the end of a process the driver may be gone already: they drop what the destroy
// functions return. engine/backend/cuda/libraries.h has the same for the vendors' libraries.

#include <cuda_runtime_api.h>

#include <memory>
#include <string>
#include <type_traits>

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

template <auto destroy> struct Destroy {
  template <class T> void operator()(T* handle) const { (void)destroy(handle); }
};
/// `Handle` is a pointer type, as all handles of these libraries are.
template <class Handle, auto destroy> using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, Destroy<destroy>>;

using Stream = Owned<cudaStream_t, cudaStreamDestroy>;
using Event = Owned<cudaEvent_t, cudaEventDestroy>;
using CapturedGraph = Owned<cudaGraph_t, cudaGraphDestroy>;
using ExecutableGraph = Owned<cudaGraphExec_t, cudaGraphExecDestroy>;
using PinnedBuffer = Owned<void*, cudaFreeHost>;

/// A stream of the calling thread's current device that waits for no other.
Stream make_stream();

/// An event of that device to wait for; until it is recorded, nothing waits for it.
Event make_event();
/// An event that knows its time.
Event make_timed_event();

}  // namespace ab::cuda

#define AB_CUDA(call) ::ab::cuda::check_status((call), #call)
