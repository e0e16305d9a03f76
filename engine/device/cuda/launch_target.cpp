// SPDX-License-Identifier: MIT
#include "engine/device/cuda/launch_target.h"

#include "engine/device/cuda/check.h"
#include "engine/device/cuda/thread_stream.h"

namespace ab::cuda {

LaunchTarget launch_target(int device_index) {
  const ThreadStream& stream = ThreadStream::current(device_index);
  return {stream.handle(), stream.multiprocessors()};
}

void check_launch() {
  const cudaError_t status = cudaGetLastError();
  AB_CHECK_KIND(communication, status != cudaErrorNoKernelImageForDevice,
                "this build has no kernels for this GPU; set CMAKE_CUDA_ARCHITECTURES to its compute capability");
  check_status(status, "the launch of a kernel");
}

}  // namespace ab::cuda
