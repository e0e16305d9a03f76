// SPDX-License-Identifier: MIT
#include "tests/ptx/streams.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/fake_gpu/stream.h"
#include "tests/ptx/faults.h"
#include "tests/ptx/memory.h"

namespace {

using Work = std::function<void()>;
using Graph = std::vector<Work>;

struct Stream {
  std::condition_variable arrived;  // work
  std::deque<Work> work;
  bool is_busy = false, is_destroyed = false;
  Graph* capture = nullptr;
};
struct Event {
  long recorded = 0, happened = 0;
};

// Never destroyed, as the threads of streams run on.
std::mutex& mutex = *new std::mutex;
std::condition_variable& changed = *new std::condition_variable;  // an event, or a stream that has done all

thread_local cudaError_t last_error = cudaSuccess;
thread_local cudaStreamCaptureMode capture_mode = cudaStreamCaptureModeGlobal;
thread_local int captures = 0;  // that this thread has begun

void run(Stream& stream) {
  std::unique_lock lock(mutex);
  while (true) {
    stream.arrived.wait(lock, [&] { return !stream.work.empty(); });
    const Work item = std::move(stream.work.front());
    stream.work.pop_front();
    stream.is_busy = true;
    lock.unlock();
    item();
    lock.lock();
    stream.is_busy = false;
    if (stream.work.empty()) changed.notify_all();
  }
}

Stream& of(cudaStream_t stream) {
  if (!stream) ptx::give_up("work for the default stream, which waits for all others");
  return *reinterpret_cast<Stream*>(stream);
}
Event& of(cudaEvent_t event) { return *reinterpret_cast<Event*>(event); }
Graph* of(cudaGraph_t graph) { return reinterpret_cast<Graph*>(graph); }
Graph* of(cudaGraphExec_t graph) { return reinterpret_cast<Graph*>(graph); }

void refuse_on_capturing(cudaStream_t stream, const char* call) {
  if (of(stream).capture) ptx::report(std::string(call) + " on a stream that captures");
  ptx::refuse_in_capture(call);
}

void wait_for(Event& event, long record) {
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return event.happened >= record; });
}
long last_record(Event& event) {
  const std::lock_guard lock(mutex);
  return event.recorded;
}

}  // namespace

cudaError_t ptx::answer(cudaError_t status) {
  if (status != cudaSuccess) last_error = status;
  return status;
}
bool ptx::is_capturing(cudaStream_t stream) { return of(stream).capture; }
void ptx::refuse_in_capture(const char* call) {
  if (captures > 0 && capture_mode != cudaStreamCaptureModeRelaxed)
    report(std::string(call) + " in a thread that captures");
}

void fake_gpu::enqueue(cudaStream_t handle, Work item) {
  Stream& stream = of(handle);
  const std::lock_guard lock(mutex);
  if (stream.is_destroyed) ptx::report("work for a stream that has been destroyed");
  if (stream.capture) return stream.capture->push_back(std::move(item));
  stream.work.push_back(std::move(item));
  stream.arrived.notify_one();
}

void fake_gpu::use_memory(const void* at, std::size_t bytes, bool writes) {
  if (bytes == 0 || !ptx::is_on_device(at, bytes, "a collective")) return;
  if (writes) ptx::set_defined(at, bytes);
  else if (!ptx::is_defined(at, bytes)) ptx::report("a collective reads what nobody has written");
}

extern "C" {

cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return last_error; }

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  ptx::refuse_in_capture("cudaStreamCreateWithFlags");
  if (flags != cudaStreamNonBlocking) ptx::report("a stream that waits for the default stream");
  auto* made = new Stream;
  std::thread([made] { run(*made); }).detach();  // until the end of the process
  *stream = reinterpret_cast<cudaStream_t>(made);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  ptx::refuse_in_capture("cudaStreamDestroy");
  const std::lock_guard lock(mutex);
  of(stream).is_destroyed = true;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  refuse_on_capturing(handle, "cudaStreamSynchronize");
  Stream& stream = of(handle);
  if (stream.capture) return ptx::answer(cudaErrorStreamCaptureUnsupported);
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return stream.work.empty() && !stream.is_busy; });
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t handle, unsigned) {
  if (of(stream).capture) ptx::report("cudaStreamWaitEvent on a stream that captures");
  fake_gpu::enqueue(stream, [&event = of(handle), record = last_record(of(handle))] { wait_for(event, record); });
  return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  return std::swap(*mode, capture_mode), cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  if (mode == cudaStreamCaptureModeGlobal) ptx::report("a capture that forbids other threads to allocate");
  const std::lock_guard lock(mutex);
  if (of(stream).capture) return ptx::answer(cudaErrorIllegalState);
  of(stream).capture = new Graph;
  ++captures;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const std::lock_guard lock(mutex);
  if (!of(stream).capture) return ptx::answer(cudaErrorIllegalState);
  *graph = reinterpret_cast<cudaGraph_t>(std::exchange(of(stream).capture, nullptr));
  --captures;
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return delete of(graph), cudaSuccess; }
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  return *executable = reinterpret_cast<cudaGraphExec_t>(new Graph(*of(graph))), cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) { return delete of(executable), cudaSuccess; }
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  for (const Work& item : *of(executable)) fake_gpu::enqueue(stream, item);
  return cudaSuccess;
}

// Events are small and few: they are never freed, as a stream may still know them.
cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return *event = reinterpret_cast<cudaEvent_t>(new Event), cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) { return cudaEventCreate(event); }
cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t stream) {
  refuse_on_capturing(stream, "cudaEventRecord");
  Event& event = of(handle);
  long record = 0;
  {
    const std::lock_guard lock(mutex);
    record = ++event.recorded;
  }
  fake_gpu::enqueue(stream, [&event, record] {
    const std::lock_guard lock(mutex);
    event.happened = std::max(event.happened, record);
    changed.notify_all();
  });
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  ptx::refuse_in_capture("cudaEventQuery");
  const std::lock_guard lock(mutex);
  return ptx::answer(of(event).happened == of(event).recorded ? cudaSuccess : cudaErrorNotReady);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  ptx::refuse_in_capture("cudaEventSynchronize");
  return wait_for(of(event), last_record(of(event))), cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t, cudaEvent_t) {
  return *milliseconds = 1, cudaSuccess;  // there are no clocks
}

}  // extern "C"
