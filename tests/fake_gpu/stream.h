#pragma once
// SPDX-License-Identifier: MIT
//
// What the fake NCCL needs of the fake CUDA runtime.

#include <cuda_runtime_api.h>

#include <functional>

namespace fake_gpu {

/// Runs `item` after all that was issued to the stream before.
void enqueue(cudaStream_t stream, std::function<void()> item);

}  // namespace fake_gpu
