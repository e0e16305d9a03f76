#pragma once
// SPDX-License-Identifier: MIT
//
// Owners for the handles of the CUDA runtime, and how streams and events are made;
// engine/backend/cuda/library_handles.h has owners for the handles of the vendors' libraries.
// Destructors cannot report a failure, and at the end of a process the driver may be gone already: what the destroy
// functions return is dropped.

#include <cuda_runtime_api.h>

#include <memory>
#include <type_traits>

namespace ab::cuda {

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
