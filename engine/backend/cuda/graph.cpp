// SPDX-License-Identifier: MIT
#include "engine/backend/graph.h"

#include "engine/backend/cuda/capture.h"
#include "engine/backend/cuda/check.h"
#include "engine/backend/cuda/device.h"
#include "engine/backend/cuda/thread_context.h"

namespace ab {
namespace cuda {
namespace {

class CudaGraph final : public Graph {
 public:
  CudaGraph(ThreadContext& context, const CapturedGraph& captured, std::shared_ptr<GraphPool> pool)
      : context_(context), pool_(std::move(pool)), workspace_(context.share_workspace()) {
    cudaGraphExec_t executable = nullptr;
    AB_CUDA(cudaGraphInstantiate(&executable, captured.get(), 0));
    executable_.reset(executable);
  }
  ~CudaGraph() override { (void)cudaStreamSynchronize(context_.stream()); }  // it may still be running

  void launch() override { AB_CUDA(cudaGraphLaunch(executable_.get(), context_.stream())); }

 private:
  ThreadContext& context_;
  std::shared_ptr<GraphPool> pool_;  // addresses in it are in the graph,
  std::shared_ptr<void> workspace_;  // and so is this one
  ExecutableGraph executable_;
};

}  // namespace
}  // namespace cuda

std::unique_ptr<Graph> cuda_capture_graph(GraphPool& pool, const std::function<void()>& issue_work) {
  cuda::ThreadContext& context = cuda::ThreadContext::current(pool.device().index);
  cuda::StreamCapture capture(context);
  issue_work();
  return std::make_unique<cuda::CudaGraph>(context, capture.finish(), pool.shared_from_this());
}

}  // namespace ab
