// SPDX-License-Identifier: MIT
#include "engine/device/upload.h"

#include "engine/device/cuda/runtime.h"
#include "engine/device/cuda/thread_stream.h"

namespace ab {
namespace cuda {
namespace {

class CudaUploadSlot final : public UploadSlot {
 public:
  CudaUploadSlot(int device_index, std::size_t bytes)
      : block_({static_cast<std::int64_t>(bytes)}, DType::uint8, {DeviceKind::cuda, device_index}),
        copied_(make_event()),
        released_(make_event()),
        copies_(make_stream()) {
    void* host = nullptr;
    const cudaError_t status = cudaMallocHost(&host, bytes);
    (void)cudaGetLastError();  // the failure is answered here and must not surface at a later launch
    AB_CHECK_KIND(communication, status == cudaSuccess,
                  "cannot pin {} bytes of host memory for a batch on its way to GPU {} ({}); lower the batch size or "
                  "the number of ranks on this machine",
                  bytes, device_index, describe(status));
    host_.reset(host);
    release();  // the block is there as soon as the allocation's turn has come on the stream of compute
  }
  ~CudaUploadSlot() override { (void)cudaStreamSynchronize(copies_.get()); }

  std::byte* host() override {
    AB_ASSERT(!is_under_way_);
    AB_CUDA(cudaEventSynchronize(copied_.get()));
    return static_cast<std::byte*>(host_.get());
  }
  void start(std::size_t bytes) override {
    is_under_way_ = true;
    AB_CUDA(cudaStreamWaitEvent(copies_.get(), released_.get(), 0));
    AB_CUDA(cudaMemcpyAsync(block_.raw(), host_.get(), bytes, cudaMemcpyHostToDevice, copies_.get()));
    AB_CUDA(cudaEventRecord(copied_.get(), copies_.get()));
  }
  const Tensor& acquire() override {
    AB_ASSERT(is_under_way_);
    AB_CUDA(cudaStreamWaitEvent(compute(), copied_.get(), 0));
    return block_;
  }
  void release() override {
    is_under_way_ = false;
    AB_CUDA(cudaEventRecord(released_.get(), compute()));
  }

 private:
  cudaStream_t compute() const { return ThreadStream::current(block_.device().index).handle(); }

  Tensor block_;
  PinnedBuffer host_;
  Event copied_, released_;
  Stream copies_;
  bool is_under_way_ = false;  // from start() to release()
};

}  // namespace
}  // namespace cuda

std::unique_ptr<UploadSlot> cuda_upload_slot(int device_index, std::size_t bytes) {
  return std::make_unique<cuda::CudaUploadSlot>(device_index, bytes);
}

}  // namespace ab
