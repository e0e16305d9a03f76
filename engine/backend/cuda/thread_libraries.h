#pragma once
// SPDX-License-Identifier: MIT
//
// The vendors' libraries of a thread, for each GPU that it works on: their handles, bound to its stream, and
// the plans of convolutions, matrix products and attention. As with streams, nothing here is shared between threads.

#include <cstddef>
#include <functional>
#include <map>

#include "engine/backend/cuda/cublaslt_gemm.h"
#include "engine/backend/cuda/cudnn_attention.h"
#include "engine/backend/cuda/cudnn_conv.h"
#include "engine/backend/cuda/cudnn_matmul.h"
#include "engine/backend/cuda/libraries.h"
#include "engine/backend/plan_choice.h"
#include "engine/device/cuda/thread_stream.h"

namespace ab::cuda {

class ThreadLibraries {
 public:
  /// The calling thread's, made at first use; the device becomes the thread's current one.
  static ThreadLibraries& current(int device_index);

  ~ThreadLibraries();
  ThreadLibraries(const ThreadLibraries&) = delete;
  ThreadLibraries& operator=(const ThreadLibraries&) = delete;

  ThreadStream& stream() const { return stream_; }

  // Made at first use.
  cublasLtHandle_t cublaslt();
  cudnnHandle_t cudnn();
  cusolverDnHandle_t cusolver();

  /// The plan, made at first use.
  CudnnConv& conv(const CudnnConvKey& key);
  CublasLtGemm& gemm(const GemmKey& key);
  CudnnMatmul& matmul(const CudnnMatmulKey& key);
  CudnnAttention& attention(const CudnnAttentionKey& key);

 private:
  explicit ThreadLibraries(ThreadStream& stream) : stream_(stream) {}

  ThreadStream& stream_;
  CublasLtHandle cublaslt_;
  CudnnHandle cudnn_;
  CusolverHandle cusolver_;
  std::map<CudnnConvKey, CudnnConv> convs_;
  std::map<GemmKey, CublasLtGemm> gemms_;
  std::map<CudnnMatmulKey, CudnnMatmul> matmuls_;
  std::map<CudnnAttentionKey, CudnnAttention> attentions_;
};

/// How long `work` takes on the stream; infinity when the library refuses to do it. Waits for the device.
double milliseconds(cudaStream_t stream, const std::function<void()>& work);

/// Keeps only the fastest of a plan's candidates, except in a capture, where nothing can be waited for. `run(i)` runs
/// candidate i on the stream of `libraries`; its results are overwritten by those of the next.
template <class Plan, class Run> void keep_fastest(Plan& plan, const ThreadLibraries& libraries, const Run& run) {
  if (plan.candidates() == 1 || libraries.stream().capture()) return;
  const ThreadStream::TrialWorkspace trial(libraries.stream());
  plan.keep(fastest(plan.candidates(),
                    [&](std::size_t i) { return milliseconds(libraries.stream().handle(), [&] { run(i); }); }));
}

}  // namespace ab::cuda
