// SPDX-License-Identifier: MIT
#include "engine/device/cuda/capture.h"

#include "engine/device/cuda/check.h"
#include "engine/device/cuda/handles.h"
#include "engine/device/cuda/memory.h"
#include "engine/device/cuda/thread_stream.h"

namespace ab::cuda {
namespace {

/// While it lives, this thread may make calls that its own capture would otherwise forbid.
class RelaxedMode {
 public:
  RelaxedMode() { AB_CUDA(cudaThreadExchangeStreamCaptureMode(&mode_)); }
  ~RelaxedMode() { (void)cudaThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedMode(const RelaxedMode&) = delete;
  RelaxedMode& operator=(const RelaxedMode&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

}  // namespace

StreamCapture::StreamCapture(ThreadStream& stream) : stream_(stream) {
  stream.refuse_in_capture("a second capture");
  beside_ = make_stream();
  AB_CUDA(cudaStreamBeginCapture(stream.handle(), cudaStreamCaptureModeThreadLocal));
  stream.set_capture(this);
}

CapturedGraph StreamCapture::finish() {
  stream_.set_capture(nullptr);
  cudaGraph_t raw = nullptr;
  const cudaError_t status = cudaStreamEndCapture(stream_.handle(), &raw);
  CapturedGraph graph(raw);
  AB_CUDA(cudaStreamSynchronize(beside_.get()));  // the pool's memory is there, also when the capture has failed
  check_status(status, "cudaStreamEndCapture");
  return graph;
}

StreamCapture::~StreamCapture() {
  if (stream_.capture() == this) {
    stream_.set_capture(nullptr);
    cudaGraph_t dropped = nullptr;
    (void)cudaStreamEndCapture(stream_.handle(), &dropped);
    if (dropped) (void)cudaGraphDestroy(dropped);
    (void)cudaStreamSynchronize(beside_.get());
  }
  (void)cudaGetLastError();  // a failure has been thrown, and must not surface at a later launch
  for (const Block& block : released_)
    device_memory(stream_.device_index()).release_on(stream_.handle(), block.address, block.bytes);
}

void* StreamCapture::allocate(CudaMemory& memory, std::size_t bytes) const {
  const RelaxedMode relaxed;
  return memory.allocate_on(beside_.get(), bytes);
}

}  // namespace ab::cuda
