// SPDX-License-Identifier: MIT
#include "engine/device/cuda/thread_stream.h"

#include "engine/device/cuda/memory.h"
#include "engine/device/graph.h"

namespace ab {
namespace cuda {

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

namespace {

class CudaGraph final : public Graph {
 public:
  CudaGraph(ThreadStream& stream, const CapturedGraph& captured, std::shared_ptr<GraphPool> pool)
      : stream_(stream), pool_(std::move(pool)), workspace_(stream.share_workspace()) {
    cudaGraphExec_t executable = nullptr;
    AB_CUDA(cudaGraphInstantiate(&executable, captured.get(), 0));
    executable_.reset(executable);
  }
  ~CudaGraph() override { (void)cudaStreamSynchronize(stream_.handle()); }  // it may still be running

  void launch() override { AB_CUDA(cudaGraphLaunch(executable_.get(), stream_.handle())); }

 private:
  ThreadStream& stream_;
  std::shared_ptr<GraphPool> pool_;  // addresses in it are in the graph,
  std::shared_ptr<void> workspace_;  // and so is this one
  ExecutableGraph executable_;
};

}  // namespace
}  // namespace cuda

std::unique_ptr<Graph> cuda_capture_graph(GraphPool& pool, const std::function<void()>& issue_work) {
  cuda::ThreadStream& stream = cuda::ThreadStream::current(pool.device().index);
  cuda::StreamCapture capture(stream);
  issue_work();
  return std::make_unique<cuda::CudaGraph>(stream, capture.finish(), pool.shared_from_this());
}

}  // namespace ab
