// SPDX-License-Identifier: MIT
#include "engine/device/cuda/thread_stream.h"

#include <vector>

#include "engine/device/cuda/memory.h"
#include "engine/device/cuda/runtime.h"
#include "engine/device/device.h"

namespace ab {
namespace cuda {
namespace {

// Trivial, so that destructors which run after the streams are gone may still ask.
thread_local bool thread_is_ending = false;

struct Streams {
  std::vector<std::unique_ptr<ThreadStream>> by_device;
  ~Streams() { thread_is_ending = true; }
};
thread_local Streams streams;

}  // namespace

ThreadStream& ThreadStream::current(int device_index) {
  AB_ASSERT(!thread_is_ending);
  const auto i = static_cast<std::size_t>(device_index);
  auto& by_device = streams.by_device;
  const bool is_known = i < by_device.size() && by_device[i];  // asked for at every launch
  if (!is_known) check_cuda_device(device_index);
  AB_CUDA(cudaSetDevice(device_index));
  if (is_known) return *by_device[i];
  if (by_device.size() <= i) by_device.resize(i + 1);
  by_device[i].reset(new ThreadStream(device_index));
  return *by_device[i];
}

ThreadStream* ThreadStream::current_if_alive(int device_index) noexcept {
  if (thread_is_ending) return nullptr;
  try {
    return &current(device_index);
  } catch (const std::exception&) {
    return nullptr;
  }
}

ThreadStream::ThreadStream(int device_index) : device_index_(device_index), stream_(make_stream()) {
  AB_CUDA(cudaDeviceGetAttribute(&multiprocessors_, cudaDevAttrMultiProcessorCount, device_index));
  device_memory(device_index).prepare_pool();
}

ThreadStream::~ThreadStream() {
  (void)cudaSetDevice(device_index_);
  (void)cudaStreamSynchronize(handle());
  workspace_.reset();  // at the end of a thread this is not ordered with the stream
}

PinnedStaging& ThreadStream::staging() {
  if (!staging_) staging_ = std::make_unique<PinnedStaging>();
  return *staging_;
}

const std::shared_ptr<PinnedSlots>& ThreadStream::pinned_slots() {
  if (!pinned_slots_) pinned_slots_ = std::make_shared<PinnedSlots>();
  return pinned_slots_;
}

void* ThreadStream::workspace(std::size_t bytes) {
  if (bytes > workspace_bytes_) {
    refuse_in_capture("a larger workspace");
    CudaMemory& memory = device_memory(device_index_);
    workspace_.reset();
    workspace_bytes_ = 0;
    workspace_ = {memory.allocate(bytes), [&memory, bytes](void* block) { memory.release(block, bytes); }};
    workspace_bytes_ = bytes;
  }
  return workspace_.get();
}

void ThreadStream::refuse_in_capture(const char* what) const {
  if (capture_) throw Bug(fmt::format("{} inside a captured step: a CUDA graph cannot repeat it", what));
}

LaunchTarget launch_target(int device_index) {
  const ThreadStream& stream = ThreadStream::current(device_index);
  return {stream.handle(), stream.multiprocessors()};
}

void check_launch() {
  const cudaError_t status = cudaGetLastError();
  AB_CHECK_KIND(communication, status != cudaErrorNoKernelImageForDevice,
                "this build has no kernels for this GPU; set CMAKE_CUDA_ARCHITECTURES to its compute capability");
  AB_CHECK_KIND(
      communication, status != cudaErrorUnsupportedPtxVersion,
      "the driver is too old to compile this build's kernels for this GPU; set CMAKE_CUDA_ARCHITECTURES to its compute "
      "capability, or install a newer driver");
  check_status(status, "the launch of a kernel");
}

}  // namespace cuda

void cuda_synchronize(int device_index) {
  const cuda::ThreadStream& stream = cuda::ThreadStream::current(device_index);
  stream.refuse_in_capture("waiting for the device");
  AB_CUDA(cudaStreamSynchronize(stream.handle()));
}

}  // namespace ab
