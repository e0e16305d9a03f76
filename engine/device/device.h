#pragma once
// SPDX-License-Identifier: MIT
//
// Whether there is a GPU to work on, and waiting for it. Needs no CUDA headers, and answers in builds without CUDA too.

#include <cstddef>
#include <cstdint>
#include <string>

#include "engine/core/dtype.h"

struct CUstream_st;  // behind CUDA's cudaStream_t

namespace ab {

/// GPUs that this process can use; 0 without a driver, without a device or in a build without CUDA.
int cuda_device_count();

/// Why cuda_device_count() is 0 and what to do about it, in one sentence; empty when there is a device.
std::string cuda_unavailable_reason();

/// "NVIDIA H200"; empty where the runtime does not tell.
std::string cuda_device_name(int device_index);
/// Its address on the PCI bus, "0000:3B:00.0", likewise.
std::string cuda_bus_address(int device_index);

/// Throws Error(communication) that says why, unless this process can use that GPU.
void check_cuda_device(int device_index);

/// Throws OutOfMemory: `wanted` bytes are more than that GPU has left.
[[noreturn]] void throw_out_of_memory(int device_index, std::int64_t in_use, std::size_t wanted);

/// Waits until all work that this thread has issued to `device` has finished. Throws Bug inside a captured step, and
/// Error(communication) when the device is not there.
void synchronize(Device device);

/// Implemented by engine/device/cuda, or by its stub in builds without CUDA.
void cuda_synchronize(int device_index);

namespace cuda {

/// Where a launch goes (cuda_launch.h): the calling thread's stream on this device, which becomes the current one.
struct LaunchTarget {
  CUstream_st* stream;
  int multiprocessors;
};
LaunchTarget launch_target(int device_index);

/// Throws Error(communication) when the launch just made was refused.
void check_launch();

}  // namespace cuda

}  // namespace ab
