#pragma once
// SPDX-License-Identifier: MIT
//
// What the CUDA backend keeps per thread and device: a stream, the libraries' handles, one workspace and the
// plans of convolutions and matrix products. Ranks may be threads that share a GPU; nothing here is shared,
// so each rank's work runs in its own order and no rank waits for another.

#include <memory>
#include <unordered_map>

#include "engine/backend/cuda/cublaslt_gemm.h"
#include "engine/backend/cuda/cudnn_conv.h"
#include "engine/backend/cuda/cudnn_matmul.h"
#include "engine/backend/cuda/handles.h"
#include "engine/backend/cuda/pinned_copy.h"
#include "engine/backend/cuda/staging.h"

namespace ab::cuda {

class StreamCapture;

class ThreadContext {
 public:
  /// The calling thread's context, made at first use; the device becomes the thread's current one.
  static ThreadContext& current(int device_index);
  /// The same where there is one; null once the thread is ending. For destructors: does not throw.
  static ThreadContext* current_if_alive(int device_index) noexcept;

  ~ThreadContext();
  ThreadContext(const ThreadContext&) = delete;
  ThreadContext& operator=(const ThreadContext&) = delete;

  int device_index() const { return device_index_; }
  int multiprocessors() const { return multiprocessors_; }
  cudaStream_t stream() const { return stream_.get(); }

  // Created at first use, and bound to the stream.
  cublasLtHandle_t cublaslt();
  cudnnHandle_t cudnn();
  cusolverDnHandle_t cusolver();
  PinnedStaging& staging();
  const std::shared_ptr<PinnedSlots>& pinned_slots();

  /// At least `bytes` bytes of device memory, valid for work issued before the next call of workspace().
  void* workspace(std::size_t bytes);
  /// Keeps the present workspace at its address, for a graph that uses it.
  std::shared_ptr<void> share_workspace() const { return workspace_; }

  /// The capture that is under way on the stream, or null.
  StreamCapture* capture() const { return capture_; }
  void set_capture(StreamCapture* capture) { capture_ = capture; }
  /// Throws Bug that names `what` while there is one: the driver would give up the capture.
  void refuse_in_capture(const char* what) const;

  /// The plan, made at first use.
  CudnnConv& conv(const CudnnConvKey& key);
  CublasLtGemm& gemm(const GemmKey& key);
  CudnnMatmul& matmul(const CudnnMatmulKey& key);

 private:
  explicit ThreadContext(int device_index);

  int device_index_;
  int multiprocessors_ = 0;
  Stream stream_;
  CublasLtHandle cublaslt_;
  CudnnHandle cudnn_;
  CusolverHandle cusolver_;
  std::unique_ptr<PinnedStaging> staging_;
  std::shared_ptr<PinnedSlots> pinned_slots_;
  StreamCapture* capture_ = nullptr;
  std::shared_ptr<void> workspace_;
  std::size_t workspace_bytes_ = 0;
  std::unordered_map<CudnnConvKey, CudnnConv, CudnnConvKeyHash> convs_;
  std::unordered_map<GemmKey, CublasLtGemm, GemmKeyHash> gemms_;
  std::unordered_map<CudnnMatmulKey, CudnnMatmul, CudnnMatmulKeyHash> matmuls_;
};

}  // namespace ab::cuda
