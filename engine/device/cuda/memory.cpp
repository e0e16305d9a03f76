// SPDX-License-Identifier: MIT
#include "engine/device/cuda/memory.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "engine/device/cuda/thread_stream.h"
#include "engine/device/device.h"

namespace ab::cuda {
namespace {

void let_streams_wait(cudaMemPool_t pool, bool wait) {
  int value = wait ? 1 : 0;
  AB_CUDA(cudaMemPoolSetAttribute(pool, cudaMemPoolReuseAllowInternalDependencies, &value));
}

}  // namespace

cudaMemPool_t CudaMemory::pool() const {
  cudaMemPool_t pool = nullptr;
  AB_CUDA(cudaDeviceGetDefaultMemPool(&pool, device_index_));
  return pool;
}

void CudaMemory::prepare_pool() {
  std::call_once(pool_is_prepared_, [this] {
    auto keep_all = std::numeric_limits<std::uint64_t>::max();
    AB_CUDA(cudaMemPoolSetAttribute(pool(), cudaMemPoolAttrReleaseThreshold, &keep_all));
    let_streams_wait(pool(), false);
  });
}

void* CudaMemory::allocate(std::size_t bytes) {
  ThreadStream& stream = ThreadStream::current(device_index_);
  if (const StreamCapture* capture = stream.capture()) return capture->allocate(*this, bytes);
  return allocate_on(stream.handle(), bytes);
}

void CudaMemory::release(void* block, std::size_t bytes) {
  if (ThreadStream* stream = ThreadStream::current_if_alive(device_index_)) {
    if (StreamCapture* capture = stream->capture()) capture->release_at_end(block, bytes);
    else release_on(stream->handle(), block, bytes);
    return;
  }
  // The thread is ending. Its ThreadStream waited for the stream before it went, so nothing of this thread uses the
  // block; to wait for the whole device would break captures of other threads.
  live_bytes_ -= static_cast<std::int64_t>(bytes);
  (void)cudaFree(block);
}

void* CudaMemory::allocate_on(cudaStream_t stream, std::size_t bytes) {
  void* block = nullptr;
  const auto try_to_allocate = [&] { return cudaMallocAsync(&block, std::max<std::size_t>(bytes, 1), stream); };
  cudaError_t status = try_to_allocate();
  if (status == cudaErrorMemoryAllocation && trim_pool(stream)) status = try_to_allocate();
  // More than there is on the device may be refused as an invalid size.
  if (status == cudaErrorMemoryAllocation || (status != cudaSuccess && bytes > sizes().total)) {
    (void)cudaGetLastError();  // the failure is answered here and must not surface at a later launch
    throw_out_of_memory(device_index_, live_bytes_, bytes);
  }
  check_status(status, "cudaMallocAsync");

  const std::int64_t live = live_bytes_ += static_cast<std::int64_t>(bytes);
  std::int64_t peak = peak_bytes_;
  while (live > peak && !peak_bytes_.compare_exchange_weak(peak, live)) {
  }
  return block;
}

/// The pool keeps what was released in pieces of the sizes that were asked for, and some of that for work which is
/// still under way: gives the system back all that this thread has released, and lets streams wait for each other's
/// blocks from now on. False inside a capture, which may not wait: there the pool has what it has.
bool CudaMemory::trim_pool(cudaStream_t stream) {
  const ThreadStream& own = ThreadStream::current(device_index_);
  if (own.capture()) return false;
  (void)cudaGetLastError();  // the failure is answered here
  for (const cudaStream_t releasing : {own.handle(), stream}) AB_CUDA(cudaStreamSynchronize(releasing));
  AB_CUDA(cudaMemPoolTrimTo(pool(), 0));
  let_streams_wait(pool(), true);
  return true;
}

void CudaMemory::release_on(cudaStream_t stream, void* block, std::size_t bytes) noexcept {
  live_bytes_ -= static_cast<std::int64_t>(bytes);
  (void)cudaFreeAsync(block, stream);  // fails only when the device has failed, which the next call reports
}

void CudaMemory::set_zero(void* block, std::size_t bytes) {
  AB_CUDA(cudaMemsetAsync(block, 0, bytes, ThreadStream::current(device_index_).handle()));
}

void CudaMemory::copy(void* to, const void* from, std::size_t bytes) {
  AB_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, ThreadStream::current(device_index_).handle()));
}

void CudaMemory::copy_from_host(void* to, const void* host, std::size_t bytes) {
  ThreadStream& stream = ThreadStream::current(device_index_);
  stream.refuse_in_capture("a copy from host memory");
  stream.staging().to_device(to, host, bytes, stream.handle());
}

void CudaMemory::copy_to_host(void* host, const void* from, std::size_t bytes) {
  ThreadStream& stream = ThreadStream::current(device_index_);
  stream.refuse_in_capture("a copy to host memory");
  stream.staging().to_host(host, from, bytes, stream.handle());
}

std::unique_ptr<HostCopy> CudaMemory::start_copy_to_host(const void* from, std::size_t bytes) {
  ThreadStream& stream = ThreadStream::current(device_index_);
  stream.refuse_in_capture("a copy to host memory");
  return start_pinned_copy(stream.pinned_slots(), from, bytes, stream.handle());
}

MemoryStats CudaMemory::stats() const { return {live_bytes_, peak_bytes_}; }

std::int64_t CudaMemory::available() const {
  (void)ThreadStream::current(device_index_);  // makes the device current
  return static_cast<std::int64_t>(sizes().free);
}

CudaMemory::Sizes CudaMemory::sizes() {
  Sizes sizes{};
  AB_CUDA(cudaMemGetInfo(&sizes.free, &sizes.total));
  return sizes;
}

CudaMemory& device_memory(int device_index) {
  // Leaked on purpose: tensors with static storage may outlive any destructor order we could choose.
  static const auto& memories = *[] {
    auto* list = new std::vector<std::unique_ptr<CudaMemory>>;
    for (int i = 0; i < cuda_device_count(); ++i) list->push_back(std::make_unique<CudaMemory>(i));
    return list;
  }();
  check_cuda_device(device_index);
  return *memories[static_cast<std::size_t>(device_index)];
}

}  // namespace ab::cuda

ab::Memory& ab::cuda_memory(int device_index) { return cuda::device_memory(device_index); }
