#pragma once
// SPDX-License-Identifier: MIT
//
// What the fake NCCL needs of the fake CUDA runtime, or of tests/ptx.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>

namespace fake_gpu {

/// Runs `item` after all that was issued to the stream before.
void enqueue(cudaStream_t stream, std::function<void()> item);

/// A library reads, or has written, device memory.
void use_memory(const void* at, std::size_t bytes, bool writes);

}  // namespace fake_gpu
