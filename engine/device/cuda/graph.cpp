// SPDX-License-Identifier: MIT
#include "engine/device/graph.h"

#include "engine/device/cuda/capture.h"
#include "engine/device/cuda/check.h"
#include "engine/device/cuda/thread_stream.h"
#include "engine/device/device.h"

namespace ab {
namespace cuda {
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
