#pragma once
// SPDX-License-Identifier: MIT
//
// What launch.h needs of the calling thread's stream, without the vendor headers behind it.

#include <cuda_runtime_api.h>

namespace ab::cuda {

/// Where a launch goes: the calling thread's stream on this device, which becomes the current one.
struct LaunchTarget {
  cudaStream_t stream;
  int multiprocessors;
};
LaunchTarget launch_target(int device_index);

/// Throws Error(communication) when the launch just made was refused.
void check_launch();

}  // namespace ab::cuda
