// SPDX-License-Identifier: MIT
//
// The device, its memory and copies, as CUDA's runtime offers them.
//   PTX_MULTIPROCESSORS   that the device has; 132
//   FAKE_GPU_COUNT, FAKE_GPU_BYTES, FAKE_GPU_SHARED   as of the fake GPU (tests/fake_gpu)
#include <cuda_runtime_api.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>

#include "tests/fake_gpu/stream.h"
#include "tests/ptx/faults.h"
#include "tests/ptx/memory.h"
#include "tests/ptx/streams.h"

using ptx::device_memory, ptx::device_mutex, ptx::report, ptx::setting;

namespace {

/// Blocks of cudaMallocHost; needs the device's mutex.
std::map<std::uint64_t, std::size_t>& pinned = *new std::map<std::uint64_t, std::size_t>;

void check_pinned(const void* at, std::size_t bytes) {
  const std::lock_guard lock(device_mutex());
  const auto address = reinterpret_cast<std::uint64_t>(at);
  auto block = pinned.upper_bound(address);
  if (block == pinned.begin() || address + bytes > std::prev(block)->first + std::prev(block)->second)
    report("a copy from or to host memory that is not pinned, or is freed");
}

void release(void* block) {
  const std::lock_guard lock(device_mutex());
  device_memory().release(block);
}

void copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  const bool to_device = kind != cudaMemcpyDeviceToHost, from_device = kind != cudaMemcpyHostToDevice;
  if (to_device && !ptx::is_on_device(to, bytes, "a copy to the device")) return;
  if (from_device && !ptx::is_on_device(from, bytes, "a copy from the device")) return;
  if (!to_device || !from_device) check_pinned(to_device ? from : to, bytes);
  // Slow, so that who does not wait for it is noticed.
  if (!from_device) std::this_thread::sleep_for(std::chrono::microseconds(500));
  const std::lock_guard lock(device_mutex());
  std::memmove(to, from, bytes);
  if (bytes == 0) return;
  if (!from_device) ptx::set_defined(to, bytes);
  else if (to_device) ptx::copy_definedness(to, from, bytes);
}

}  // namespace

extern "C" {

cudaError_t cudaDriverGetVersion(int* version) { return *version = CUDART_VERSION, cudaSuccess; }
cudaError_t cudaGetDeviceCount(int* count) {
  return *count = static_cast<int>(setting("FAKE_GPU_COUNT", 1)), cudaSuccess;
}
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  const bool is_count = attribute == cudaDevAttrMultiProcessorCount;
  return *value = is_count ? static_cast<int>(setting("PTX_MULTIPROCESSORS", 132)) : 1, cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int) {
  const auto rank = setting("OMPI_COMM_WORLD_RANK", setting("RANK", 0));
  std::snprintf(id, static_cast<std::size_t>(length), "0000:%d",
                std::getenv("FAKE_GPU_SHARED") ? 0 : static_cast<int>(rank));
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  return report("cudaDeviceSynchronize breaks the captures of other threads"), cudaSuccess;
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int) { return *pool = nullptr, cudaSuccess; }
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) {
  return ptx::refuse_in_capture("cudaMemPoolSetAttribute"), cudaSuccess;
}
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, std::size_t) {
  ptx::refuse_in_capture("cudaMemPoolTrimTo");
  const std::lock_guard lock(device_mutex());
  return device_memory().trim(), cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  const std::lock_guard lock(device_mutex());
  *total = device_memory().total();
  *free = *total - std::min(*total, device_memory().taken());
  return cudaSuccess;
}
cudaError_t cudaMallocAsync(void** block, std::size_t bytes, cudaStream_t stream) {
  if (ptx::is_capturing(stream)) report("cudaMallocAsync on a stream that captures becomes a part of the graph");
  ptx::refuse_in_capture("cudaMallocAsync");
  const std::lock_guard lock(device_mutex());
  *block = device_memory().allocate(bytes);
  return *block ? cudaSuccess : ptx::answer(cudaErrorMemoryAllocation);
}
cudaError_t cudaFreeAsync(void* block, cudaStream_t stream) {
  if (ptx::is_capturing(stream)) report("cudaFreeAsync on a stream that captures");
  ptx::refuse_in_capture("cudaFreeAsync");
  return fake_gpu::enqueue(stream, [block] { release(block); }), cudaSuccess;
}
cudaError_t cudaFree(void* block) {
  ptx::refuse_in_capture("cudaFree");
  return release(block), cudaSuccess;
}
cudaError_t cudaMallocHost(void** block, std::size_t bytes) {
  ptx::refuse_in_capture("cudaMallocHost");
  const std::lock_guard lock(device_mutex());
  *block = std::malloc(bytes);
  pinned[reinterpret_cast<std::uint64_t>(*block)] = bytes;
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* block) {
  ptx::refuse_in_capture("cudaFreeHost");
  const std::lock_guard lock(device_mutex());
  if (!pinned.erase(reinterpret_cast<std::uint64_t>(block))) report("host memory is freed that is not pinned");
  return std::free(block), cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  if (ptx::is_capturing(stream) && kind != cudaMemcpyDeviceToDevice)
    report("a copy from or to the host on a stream that captures");
  return fake_gpu::enqueue(stream, [=] { copy(to, from, bytes, kind); }), cudaSuccess;
}
/// To host memory that is not pinned it waits.
cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                              std::size_t width, std::size_t rows, cudaMemcpyKind kind, cudaStream_t stream) {
  if (ptx::is_capturing(stream)) report("a strided copy on a stream that captures");
  if (to_pitch < width || from_pitch < width) return ptx::answer(cudaErrorInvalidPitchValue);
  if (kind != cudaMemcpyDeviceToHost) ptx::give_up("a strided copy that is not to the host");
  fake_gpu::enqueue(stream, [=] {
    for (std::size_t row = 0; row < rows; ++row) {
      const char* const line = static_cast<const char*>(from) + row * from_pitch;
      if (!ptx::is_on_device(line, width, "a strided copy")) return;
      const std::lock_guard lock(device_mutex());
      std::memcpy(static_cast<char*>(to) + row * to_pitch, line, width);
    }
  });
  return cudaStreamSynchronize(stream);
}
cudaError_t cudaMemsetAsync(void* block, int value, std::size_t bytes, cudaStream_t stream) {
  fake_gpu::enqueue(stream, [=] {
    if (bytes == 0 || !ptx::is_on_device(block, bytes, "cudaMemsetAsync")) return;
    const std::lock_guard lock(device_mutex());
    std::memset(block, value, bytes);
    ptx::set_defined(block, bytes);
  });
  return cudaSuccess;
}

}  // extern "C"
