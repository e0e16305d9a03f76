// SPDX-License-Identifier: MIT
//
// A CUDA runtime whose device memory is host memory, to be preloaded into a test that is to run where there is no GPU:
// streams, events and copies work, kernels do not. Every stream has a thread of its own, so work that is issued to two
// streams without an event between them does race. What goes wrong is chosen by environment variables:
//   FAKE_GPU_DRIVER   the newest CUDA that the driver supports, as 13000; 0: there is none
//   FAKE_GPU_COUNT    GPUs
//   FAKE_GPU_BYTES    memory of each, for this process
//   FAKE_GPU_SHARED   all processes have the same GPU; otherwise each has its own
//   FAKE_GPU_FAULT    the copy, counted from 1, with which memory goes bad: waiting for it fails, and all that works on memory or streams
#include "tests/fake_gpu/stream.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

namespace {

std::mutex& mutex = *new std::mutex;  // both outlive the threads of streams
std::condition_variable& changed = *new std::condition_variable;

struct Stream {
  std::deque<std::function<void()>> work;
  bool busy = false;
};

void run(Stream& stream) {
  std::unique_lock lock(mutex);
  while (true) {
    changed.wait(lock, [&] { return !stream.work.empty(); });
    const std::function<void()> item = std::move(stream.work.front());
    stream.work.pop_front();
    stream.busy = true;
    lock.unlock();
    item();
    lock.lock();
    stream.busy = false;
    changed.notify_all();
  }
}

struct Event {
  long recorded = 0, happened = 0;
};

void wait_for(Event* event, long number) {
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return event->happened >= number; });
}

long last_record(Event* event) {
  const std::lock_guard lock(mutex);
  return event->recorded;
}

std::size_t number_from(const char* variable, std::size_t otherwise) {
  const char* const text = std::getenv(variable);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

int driver_version() { return static_cast<int>(number_from("FAKE_GPU_DRIVER", CUDART_VERSION)); }

/// Sizes of all blocks, and those that were released, by size: each serves again for its own size only, so that a pool
/// which is never trimmed is noticed. All need the mutex.
std::map<void*, std::size_t>& block_bytes = *new std::map<void*, std::size_t>;
std::multimap<std::size_t, void*>& pool = *new std::multimap<std::size_t, void*>;
std::size_t taken_bytes = 0;

void give_back(void* block) {
  taken_bytes -= block_bytes.at(block);
  block_bytes.erase(block);
  std::free(block);
}

/// What every call answers; an error of a kernel or a copy stays until the process ends.
std::atomic<cudaError_t>& sticky_error = *new std::atomic<cudaError_t>(cudaSuccess);

void count_copy() {
  static std::atomic<std::size_t> copies = 0;
  static const std::size_t bad = number_from("FAKE_GPU_FAULT", 0);
  if (++copies == bad) sticky_error = cudaErrorIllegalAddress;
}

Event* of(cudaEvent_t event) { return reinterpret_cast<Event*>(event); }

}  // namespace

void fake_gpu::enqueue(cudaStream_t stream, std::function<void()> item) {
  const std::lock_guard lock(mutex);
  reinterpret_cast<Stream*>(stream)->work.push_back(std::move(item));
  changed.notify_all();
}

/// Nothing is known of memory here.
void fake_gpu::use_memory(const void*, std::size_t, bool) {}

extern "C" {

cudaError_t cudaDriverGetVersion(int* version) { return *version = driver_version(), cudaSuccess; }
cudaError_t cudaGetDeviceCount(int* count) {
  *count = driver_version() < CUDART_VERSION ? 0 : static_cast<int>(number_from("FAKE_GPU_COUNT", 1));
  if (driver_version() < CUDART_VERSION) return cudaErrorInsufficientDriver;
  return *count > 0 ? cudaSuccess : cudaErrorNoDevice;
}
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaGetLastError() { return sticky_error; }
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) { return *value = 1, sticky_error; }
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t*, int) { return sticky_error; }
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) { return sticky_error; }

cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int) {
  const std::size_t rank = number_from("OMPI_COMM_WORLD_RANK", number_from("RANK", 0));
  std::snprintf(id, static_cast<std::size_t>(length), "0000:%zu", std::getenv("FAKE_GPU_SHARED") ? 0 : rank);
  return sticky_error;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  auto* made = new Stream;
  std::thread([made] { run(*made); }).detach();  // until the end of the process
  *stream = reinterpret_cast<cudaStream_t>(made);
  return sticky_error;
}
cudaError_t cudaStreamDestroy(cudaStream_t) { return sticky_error; }
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  auto* waiting = reinterpret_cast<Stream*>(stream);
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return waiting->work.empty() && !waiting->busy; });
  return sticky_error;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  fake_gpu::enqueue(stream, [event = of(event), number = last_record(of(event))] { wait_for(event, number); });
  return sticky_error;
}

// Events are small and few here: they are never freed, as a stream may still know them.
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  return *event = reinterpret_cast<cudaEvent_t>(new Event), sticky_error;
}
cudaError_t cudaEventDestroy(cudaEvent_t) { return sticky_error; }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  long number = 0;
  {
    const std::lock_guard lock(mutex);
    number = ++of(event)->recorded;
  }
  fake_gpu::enqueue(stream, [event = of(event), number] {
    const std::lock_guard lock(mutex);
    event->happened = std::max(event->happened, number);
    changed.notify_all();
  });
  return sticky_error;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  const std::lock_guard lock(mutex);
  return of(event)->happened == of(event)->recorded ? sticky_error.load() : cudaErrorNotReady;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return wait_for(of(event), last_record(of(event))), sticky_error;
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  const std::lock_guard lock(mutex);
  *total = number_from("FAKE_GPU_BYTES", std::size_t{1} << 34);
  *free = *total - std::min<std::size_t>(*total, taken_bytes);
  return sticky_error;
}
cudaError_t cudaMallocAsync(void** block, std::size_t bytes, cudaStream_t) {
  const std::lock_guard lock(mutex);
  if (const auto kept = pool.find(bytes); kept != pool.end()) {
    *block = kept->second;
    pool.erase(kept);
  } else {
    const bool fits = taken_bytes + bytes <= number_from("FAKE_GPU_BYTES", std::size_t{1} << 34);
    *block = fits ? std::malloc(bytes) : nullptr;
    if (!*block) return cudaErrorMemoryAllocation;
    taken_bytes += block_bytes[*block] = bytes;
  }
  std::memset(*block, 0xff, bytes);  // NaN: nothing may be read before it is written
  return sticky_error;
}
cudaError_t cudaFreeAsync(void* block, cudaStream_t stream) {
  fake_gpu::enqueue(stream, [block] {
    const std::lock_guard lock(mutex);
    pool.emplace(block_bytes.at(block), block);
  });
  return sticky_error;
}
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, std::size_t) {
  const std::lock_guard lock(mutex);
  for (const auto& [bytes, block] : pool) give_back(block);
  pool.clear();
  return sticky_error;
}
/// Frees a block from cudaMallocAsync: waits for nothing.
cudaError_t cudaFree(void* block) {
  const std::lock_guard lock(mutex);
  return give_back(block), sticky_error;
}
/// Another thread may be capturing what it issues, and would lose that.
cudaError_t cudaDeviceSynchronize() {
  std::fprintf(stderr, "fake CUDA: cudaDeviceSynchronize breaks the captures of other threads\n");
  std::abort();
}
cudaError_t cudaMallocHost(void** block, std::size_t bytes) { return *block = std::malloc(bytes), sticky_error; }
cudaError_t cudaFreeHost(void*) { return sticky_error; }
/// Copies from the host are slow, so that who does not wait for one is noticed.
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  fake_gpu::enqueue(stream, [=] {
    if (kind == cudaMemcpyHostToDevice) std::this_thread::sleep_for(std::chrono::microseconds(500));
    std::memcpy(to, from, bytes);
    count_copy();
  });
  return sticky_error;
}
cudaError_t cudaMemsetAsync(void* block, int value, std::size_t bytes, cudaStream_t stream) {
  return fake_gpu::enqueue(stream, [=] { std::memset(block, value, bytes); }), sticky_error;
}

}  // extern "C"
