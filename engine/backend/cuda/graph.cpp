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
  CudaGraph(ThreadContext& context, const CapturedGraph& captured)
      : context_(context), workspace_(context.share_workspace()) {
    cudaGraphExec_t executable = nullptr;
    AB_CUDA(cudaGraphInstantiate(&executable, captured.get(), 0));
    executable_.reset(executable);
  }
  ~CudaGraph() override { (void)cudaStreamSynchronize(context_.stream()); }  // it may still be running

  void launch() override { AB_CUDA(cudaGraphLaunch(executable_.get(), context_.stream())); }

 private:
  ThreadContext& context_;
  std::shared_ptr<void> workspace_;  // its address is in the graph
  ExecutableGraph executable_;
};

}  // namespace
}  // namespace cuda

std::unique_ptr<Graph> cuda_capture_graph(int device_index, const std::function<void()>& issue_work) {
  cuda::ThreadContext& context = cuda::ThreadContext::current(device_index);
  cuda::StreamCapture capture(context);
  issue_work();
  return std::make_unique<cuda::CudaGraph>(context, capture.finish());
}

}  // namespace ab
