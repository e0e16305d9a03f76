// SPDX-License-Identifier: MIT
//
// This folder stands in for engine/device/cuda in builds that emulate a GPU (CMake option AB_EMULATE_GPU), for tests of
// everything that has to keep host and device memory apart.
#include "engine/device/device.h"

#include "engine/device/emulated_gpu/arena.h"
#include "engine/device/emulated_gpu/capture.h"

namespace ab {

int cuda_device_count() { return 2; }
std::string cuda_unavailable_reason() { return {}; }

Memory& cuda_memory(int device_index) { return emulated_gpu::arena(device_index); }

void cuda_synchronize(int device_index) {
  emulated_gpu::refuse_in_capture("waiting for the device");
  emulated_gpu::arena(device_index).count_host_wait();
}

}  // namespace ab
