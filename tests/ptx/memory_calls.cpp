// SPDX-License-Identifier: MIT
//
// The device, its memory and copies, as CUDA's runtime offers them.
//   PTX_MULTIPROCESSORS   that the device has; 132
//   PTX_DRIVER            the newest CUDA that the driver supports, as 13000; 0: there is no driver
//   PTX_DEVICES           how many there are; 1
//   PTX_BYTES             memory of each, for this process; 16 GiB
//   PTX_SHARED            all processes have the same device; otherwise each has its own
#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/ptx/faults.h"
#include "tests/ptx/memory.h"
#include "tests/ptx/streams.h"

using ptx::device_memory, ptx::device_mutex, ptx::report, ptx::setting;

namespace {

std::atomic<bool> pool_may_wait = true;  // for what other streams will release

/// Blocks of cudaMallocHost; needs the device's mutex.
std::map<std::uint64_t, std::size_t>& pinned = *new std::map<std::uint64_t, std::size_t>;

bool is_pinned(const void* at, std::size_t bytes) {
  const std::lock_guard lock(device_mutex());
  const auto address = reinterpret_cast<std::uint64_t>(at);
  const auto behind = pinned.upper_bound(address);
  if (behind != pinned.begin() && address + bytes <= std::prev(behind)->first + std::prev(behind)->second) return true;
  return report("a copy from or to host memory that is not pinned, or is freed"), false;
}

void release(void* block) {
  const std::lock_guard lock(device_mutex());
  device_memory().release(block);
}

/// `issued`: the bytes as they were when the copy was issued.
void copy_to_device(void* to, const void* from, const std::vector<char>& issued) {
  // Slow, so that who does not wait for it is noticed.
  std::this_thread::sleep_for(std::chrono::microseconds(500));
  const std::lock_guard lock(device_mutex());
  if (issued.empty() || !is_pinned(from, issued.size()) ||
      !ptx::is_on_device(to, issued.size(), "a copy to the device"))
    return;
  if (std::memcmp(from, issued.data(), issued.size()) != 0) report("host memory changes while a copy reads it");
  std::memcpy(ptx::on_host(to), from, issued.size());
  ptx::set_defined(to, issued.size());
}

void copy_from_device(void* to, const void* from, std::size_t bytes, bool to_device) {
  const std::lock_guard lock(device_mutex());
  if (bytes == 0 || !ptx::is_on_device(from, bytes, "a copy from the device")) return;
  if (to_device ? !ptx::is_on_device(to, bytes, "a copy on the device") : !is_pinned(to, bytes)) return;
  std::memmove(to_device ? ptx::on_host(to) : to, ptx::on_host(from), bytes);
  if (to_device) ptx::copy_definedness(to, from, bytes);
}

}  // namespace

extern "C" {

cudaError_t cudaDriverGetVersion(int* version) {
  return *version = static_cast<int>(setting("PTX_DRIVER", CUDART_VERSION)), ptx::answer();
}
cudaError_t cudaGetDeviceCount(int* count) {
  *count = 0;
  if (setting("PTX_DRIVER", CUDART_VERSION) < CUDART_VERSION) return cudaErrorInsufficientDriver;
  *count = static_cast<int>(setting("PTX_DEVICES", 1));
  return *count > 0 ? ptx::answer() : cudaErrorNoDevice;
}
cudaError_t cudaSetDevice(int) { return ptx::answer(); }
cudaError_t cudaGetDevice(int* device) { return *device = 0, ptx::answer(); }
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  const bool is_count = attribute == cudaDevAttrMultiProcessorCount;
  return *value = is_count ? static_cast<int>(setting("PTX_MULTIPROCESSORS", 132)) : 1, ptx::answer();
}
cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int) {
  const auto rank = setting("OMPI_COMM_WORLD_RANK", setting("RANK", 0));
  std::snprintf(id, static_cast<std::size_t>(length), "0000:%d",
                std::getenv("PTX_SHARED") ? 0 : static_cast<int>(rank));
  return ptx::answer();
}
cudaError_t cudaDeviceSynchronize() {
  return report("cudaDeviceSynchronize breaks the captures of other threads"), ptx::answer();
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int) { return *pool = nullptr, ptx::answer(); }
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr attribute, void* value) {
  if (attribute == cudaMemPoolReuseAllowInternalDependencies) pool_may_wait = *static_cast<const int*>(value) != 0;
  return ptx::refuse_in_capture("cudaMemPoolSetAttribute"), ptx::answer();
}
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, std::size_t) {
  ptx::refuse_in_capture("cudaMemPoolTrimTo");
  const std::lock_guard lock(device_mutex());
  return device_memory().trim(), ptx::answer();
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  const std::lock_guard lock(device_mutex());
  *total = device_memory().total();
  *free = *total - std::min(*total, device_memory().taken());
  return ptx::answer();
}
cudaError_t cudaMallocAsync(void** block, std::size_t bytes, cudaStream_t stream) {
  if (ptx::is_capturing(stream)) report("cudaMallocAsync on a stream that captures becomes a part of the graph");
  ptx::refuse_in_capture("cudaMallocAsync");
  const auto try_to_allocate = [&] {
    const std::lock_guard lock(device_mutex());
    return *block = device_memory().allocate(bytes);
  };
  if (!try_to_allocate() && pool_may_wait) {
    ptx::finish_streams();
    const std::lock_guard lock(device_mutex());
    device_memory().trim();
    try_to_allocate();
  }
  if (*block) return ptx::answer();
  return ptx::answer(bytes > device_memory().total() ? cudaErrorInvalidValue : cudaErrorMemoryAllocation);
}
cudaError_t cudaFreeAsync(void* block, cudaStream_t stream) {
  if (ptx::is_capturing(stream)) report("cudaFreeAsync on a stream that captures");
  ptx::refuse_in_capture("cudaFreeAsync");
  return ptx::enqueue(stream, [block] { release(block); }), ptx::answer();
}
cudaError_t cudaFree(void* block) {
  ptx::refuse_in_capture("cudaFree");
  return release(block), ptx::answer();
}
cudaError_t cudaMallocHost(void** block, std::size_t bytes) {
  ptx::refuse_in_capture("cudaMallocHost");
  const std::lock_guard lock(device_mutex());
  *block = std::malloc(bytes);
  pinned[reinterpret_cast<std::uint64_t>(*block)] = bytes;
  return ptx::answer();
}
cudaError_t cudaFreeHost(void* block) {
  ptx::refuse_in_capture("cudaFreeHost");
  const std::lock_guard lock(device_mutex());
  if (!pinned.erase(reinterpret_cast<std::uint64_t>(block))) report("host memory is freed that is not pinned");
  return std::free(block), ptx::answer();
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  if (ptx::is_capturing(stream) && kind != cudaMemcpyDeviceToDevice)
    report("a copy from or to the host on a stream that captures");
  if (kind == cudaMemcpyHostToDevice) {
    const auto* const begin = static_cast<const char*>(from);
    ptx::enqueue(stream, [=, issued = std::vector(begin, begin + bytes)] { copy_to_device(to, from, issued); });
  } else {
    ptx::enqueue(stream, [=] { copy_from_device(to, from, bytes, kind == cudaMemcpyDeviceToDevice); });
  }
  ptx::enqueue(stream, ptx::count_copy);
  return ptx::answer();
}
/// To host memory that is not pinned it waits.
cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                              std::size_t width, std::size_t rows, cudaMemcpyKind kind, cudaStream_t stream) {
  if (ptx::is_capturing(stream)) report("a strided copy on a stream that captures");
  if (to_pitch < width || from_pitch < width) return ptx::answer(cudaErrorInvalidPitchValue);
  if (kind != cudaMemcpyDeviceToHost) ptx::give_up("a strided copy that is not to the host");
  ptx::enqueue(stream, [=] {
    for (std::size_t row = 0; row < rows; ++row) {
      const char* const line = static_cast<const char*>(from) + row * from_pitch;
      if (!ptx::is_on_device(line, width, "a strided copy")) return;
      const std::lock_guard lock(device_mutex());
      std::memcpy(static_cast<char*>(to) + row * to_pitch, ptx::on_host(line), width);
    }
  });
  return cudaStreamSynchronize(stream);
}
cudaError_t cudaMemsetAsync(void* block, int value, std::size_t bytes, cudaStream_t stream) {
  ptx::enqueue(stream, [=] {
    if (bytes == 0 || !ptx::is_on_device(block, bytes, "cudaMemsetAsync")) return;
    const std::lock_guard lock(device_mutex());
    std::memset(ptx::on_host(block), value, bytes);
    ptx::set_defined(block, bytes);
  });
  return ptx::answer();
}

}  // extern "C"
