// SPDX-License-Identifier: MIT
#include "tests/ptx/streams.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

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
  std::uint64_t place = 0;  // of the last record in the work of all
};

// Never destroyed, as the threads of streams run on.
std::vector<Stream*>& streams = *new std::vector<Stream*>;
std::mutex& mutex = *new std::mutex;
std::condition_variable& changed = *new std::condition_variable;  // an event, or a stream that has done all

std::atomic<bool> device_is_lost = false;
std::atomic<std::int64_t> host_waits = 0, graph_launches = 0;
thread_local cudaError_t last_error = cudaSuccess;
thread_local cudaStreamCaptureMode capture_mode = cudaStreamCaptureModeGlobal;
thread_local int captures = 0;          // that this thread has begun
thread_local std::uint64_t issued = 0;  // by this thread, to all streams

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
  if (device_is_lost) status = cudaErrorIllegalAddress;
  if (status != cudaSuccess) last_error = status;
  return status;
}
void ptx::count_copy() {
  static std::atomic<std::uint64_t> copies = 0;
  if (++copies == setting("PTX_FAULT", 0)) device_is_lost = true;
}
void ptx::finish_streams() {
  std::unique_lock lock(mutex);
  changed.wait(lock, [] {
    return std::all_of(streams.begin(), streams.end(), [](const Stream* s) { return s->work.empty() && !s->is_busy; });
  });
}
bool ptx::is_capturing(cudaStream_t stream) { return of(stream).capture; }
void ptx::refuse_in_capture(const char* call) {
  if (captures > 0 && capture_mode != cudaStreamCaptureModeRelaxed)
    report(std::string(call) + " in a thread that captures");
}

void ptx::enqueue(cudaStream_t handle, Work item) {
  Stream& stream = of(handle);
  const std::lock_guard lock(mutex);
  if (stream.is_destroyed) ptx::report("work for a stream that has been destroyed");
  if (stream.capture) return stream.capture->push_back(std::move(item));
  ++issued;
  stream.work.push_back(std::move(item));
  stream.arrived.notify_one();
}

extern "C" {

// For tests (tests/ptx_gpu.h).
std::int64_t ptx_host_waits() { return host_waits; }
std::int64_t ptx_graph_launches() { return graph_launches; }

cudaError_t cudaGetLastError() { return ptx::answer(), std::exchange(last_error, cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return ptx::answer(), last_error; }

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  ptx::refuse_in_capture("cudaStreamCreateWithFlags");
  if (flags != cudaStreamNonBlocking) ptx::report("a stream that waits for the default stream");
  auto* made = new Stream;
  {
    const std::lock_guard lock(mutex);
    streams.push_back(made);
  }
  std::thread([made] { run(*made); }).detach();  // until the end of the process
  *stream = reinterpret_cast<cudaStream_t>(made);
  return ptx::answer();
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  ptx::refuse_in_capture("cudaStreamDestroy");
  const std::lock_guard lock(mutex);
  of(stream).is_destroyed = true;
  return ptx::answer();
}
cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  refuse_on_capturing(handle, "cudaStreamSynchronize");
  Stream& stream = of(handle);
  if (stream.capture) return ptx::answer(cudaErrorStreamCaptureUnsupported);
  std::unique_lock lock(mutex);
  ++host_waits;
  changed.wait(lock, [&] { return stream.work.empty() && !stream.is_busy; });
  return ptx::answer();
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t handle, unsigned) {
  if (of(stream).capture) ptx::report("cudaStreamWaitEvent on a stream that captures");
  ptx::enqueue(stream, [&event = of(handle), record = last_record(of(handle))] { wait_for(event, record); });
  return ptx::answer();
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  return std::swap(*mode, capture_mode), ptx::answer();
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  if (mode == cudaStreamCaptureModeGlobal) ptx::report("a capture that forbids other threads to allocate");
  const std::lock_guard lock(mutex);
  if (of(stream).capture) return ptx::answer(cudaErrorIllegalState);
  of(stream).capture = new Graph;
  ++captures;
  return ptx::answer();
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const std::lock_guard lock(mutex);
  if (!of(stream).capture) return ptx::answer(cudaErrorIllegalState);
  *graph = reinterpret_cast<cudaGraph_t>(std::exchange(of(stream).capture, nullptr));
  --captures;
  return ptx::answer();
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return delete of(graph), ptx::answer(); }
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  return *executable = reinterpret_cast<cudaGraphExec_t>(new Graph(*of(graph))), ptx::answer();
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) { return delete of(executable), ptx::answer(); }
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  ++graph_launches;
  for (const Work& item : *of(executable)) ptx::enqueue(stream, item);
  return ptx::answer();
}

// Events are small and few: they are never freed, as a stream may still know them.
cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return *event = reinterpret_cast<cudaEvent_t>(new Event), ptx::answer();
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) { return cudaEventCreate(event); }
cudaError_t cudaEventDestroy(cudaEvent_t) { return ptx::answer(); }
cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t stream) {
  refuse_on_capturing(stream, "cudaEventRecord");
  Event& event = of(handle);
  long record = 0;
  {
    const std::lock_guard lock(mutex);
    record = ++event.recorded;
    event.place = issued + 1;
  }
  ptx::enqueue(stream, [&event, record] {
    const std::lock_guard lock(mutex);
    event.happened = std::max(event.happened, record);
    changed.notify_all();
  });
  return ptx::answer();
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  ptx::refuse_in_capture("cudaEventQuery");
  const std::lock_guard lock(mutex);
  return ptx::answer(of(event).happened == of(event).recorded ? cudaSuccess : cudaErrorNotReady);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  ptx::refuse_in_capture("cudaEventSynchronize");
  {
    const std::lock_guard lock(mutex);
    if (of(event).place == issued) ++host_waits;
  }
  return wait_for(of(event), last_record(of(event))), ptx::answer();
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t, cudaEvent_t) {
  // There are no clocks: whatever is timed last is the fastest.
  static std::atomic<int> calls = 0;
  return *milliseconds = 1.0F / static_cast<float>(++calls), ptx::answer();
}

}  // extern "C"
