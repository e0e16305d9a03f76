// SPDX-License-Identifier: MIT
#include "engine/backend/cuda/capture.h"

#include "engine/backend/cuda/check.h"
#include "engine/backend/cuda/memory.h"
#include "engine/backend/cuda/stream.h"
#include "engine/backend/cuda/thread_context.h"

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

StreamCapture::StreamCapture(ThreadContext& context) : context_(context) {
  context.refuse_in_capture("another capture");
  beside_ = make_stream();
  AB_CUDA(cudaStreamBeginCapture(context.stream(), cudaStreamCaptureModeThreadLocal));
  context.set_capture(this);
}

CapturedGraph StreamCapture::finish() {
  context_.set_capture(nullptr);
  cudaGraph_t raw = nullptr;
  const cudaError_t status = cudaStreamEndCapture(context_.stream(), &raw);
  CapturedGraph graph(raw);
  AB_CUDA(cudaStreamSynchronize(beside_.get()));  // the pool's memory is there, also when the capture has failed
  check_status(status, "cudaStreamEndCapture");
  return graph;
}

StreamCapture::~StreamCapture() {
  if (context_.capture() == this) {
    context_.set_capture(nullptr);
    cudaGraph_t dropped = nullptr;
    (void)cudaStreamEndCapture(context_.stream(), &dropped);
    if (dropped) (void)cudaGraphDestroy(dropped);
    (void)cudaStreamSynchronize(beside_.get());
  }
  (void)cudaGetLastError();  // a failure has been thrown, and must not surface at a later launch
  for (const Block& block : released_)
    device_memory(context_.device_index()).release_on(context_.stream(), block.address, block.bytes);
}

void* StreamCapture::allocate(CudaMemory& memory, std::size_t bytes) const {
  const RelaxedMode relaxed;
  return memory.allocate_on(beside_.get(), bytes);
}

}  // namespace ab::cuda
