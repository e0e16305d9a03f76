#pragma once
// SPDX-License-Identifier: MIT
//
// Streams: each has a thread of its own, so that work of two of them races where no event is between. What is issued to
// a stream that captures becomes a graph.
//   PTX_FAULT=n   after the n-th copy every call fails, as after an illegal access

#include <cuda_runtime_api.h>

#include <functional>

namespace ptx {

/// Of every call: an error stays for cudaGetLastError; one of a kernel or a copy comes back from all calls from then on.
cudaError_t answer(cudaError_t status = cudaSuccess);
void count_copy();

/// Runs `item` after all that was issued to the stream before.
void enqueue(cudaStream_t stream, std::function<void()> item);

/// Waits for all that was issued to any stream.
void finish_streams();

bool is_capturing(cudaStream_t stream);
/// Reports a call that a capture of this thread forbids.
void refuse_in_capture(const char* call);

}  // namespace ptx
