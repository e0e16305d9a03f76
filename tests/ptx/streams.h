#pragma once
// SPDX-License-Identifier: MIT
//
// Streams: each has a thread of its own, so that work of two of them races where no event is between. What is issued to
// a stream that captures becomes a graph. Libraries enqueue their work by tests/fake_gpu/stream.h.

#include <cuda_runtime_api.h>

namespace ptx {

/// Remembers an error for cudaGetLastError, and returns it.
cudaError_t answer(cudaError_t status);

bool is_capturing(cudaStream_t stream);
/// Reports a call that a capture of this thread forbids.
void refuse_in_capture(const char* call);

}  // namespace ptx
