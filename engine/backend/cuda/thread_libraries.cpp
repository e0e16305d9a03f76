// SPDX-License-Identifier: MIT
#include "engine/backend/cuda/thread_libraries.h"

#include <limits>
#include <memory>
#include <vector>

#include "engine/backend/cuda/libraries.h"
#include "engine/device/cuda/runtime.h"

namespace ab::cuda {
namespace {

// Reductions that repeat bit for bit (cudnn_conv.cpp) came with this version.
constexpr std::size_t kOldestCudnn = 91100;
static_assert(CUDNN_VERSION >= kOldestCudnn, "abtrain needs the headers of cuDNN 9.11 or newer");

/// The plan of `key`, made at first use from the key and a handle.
template <class Key, class Plan, class Handle>
Plan& planned(std::map<Key, Plan>& plans, const Key& key, ThreadStream& stream, const char* what, Handle handle) {
  if (const auto it = plans.find(key); it != plans.end()) return it->second;
  stream.refuse_in_capture(what);
  return plans.try_emplace(key, key, handle).first->second;
}

// Launches between two looks at the clock, so that what the host takes to issue one is hidden behind the others.
constexpr int kLaunches = 5;

}  // namespace

ThreadLibraries& ThreadLibraries::current(int device_index) {
  // First, so that at the end of a thread its libraries go before its streams.
  ThreadStream& stream = ThreadStream::current(device_index);
  thread_local std::vector<std::unique_ptr<ThreadLibraries>> by_device;
  const auto i = static_cast<std::size_t>(device_index);
  if (by_device.size() <= i) by_device.resize(i + 1);
  if (!by_device[i]) by_device[i].reset(new ThreadLibraries(stream));
  return *by_device[i];
}

ThreadLibraries::~ThreadLibraries() {
  (void)cudaSetDevice(stream_.device_index());
  (void)cudaStreamSynchronize(stream_.handle());
}

cublasLtHandle_t ThreadLibraries::cublaslt() {
  if (!cublaslt_) {
    cublasLtHandle_t handle = nullptr;
    AB_CUDA(cublasLtCreate(&handle));
    cublaslt_.reset(handle);
  }
  return cublaslt_.get();
}

cudnnHandle_t ThreadLibraries::cudnn() {
  if (!cudnn_) {
    AB_CHECK_KIND(communication, cudnnGetVersion() >= kOldestCudnn,
                  "cuDNN {} is too old: install cuDNN 9.11 or newer, or put its folder first on LD_LIBRARY_PATH",
                  cudnnGetVersion());
    cudnnHandle_t handle = nullptr;
    const cudnnStatus_t status = cudnnCreate(&handle);
    AB_CHECK_KIND(
        communication, status == CUDNN_STATUS_SUCCESS,
        "cannot start {}; check that all libcudnn_*.so.9 lie in one folder on LD_LIBRARY_PATH and that the GPU has "
        "free memory",
        describe(status));
    cudnn_.reset(handle);
    AB_CUDA(cudnnSetStream(handle, stream_.handle()));
  }
  return cudnn_.get();
}

cusolverDnHandle_t ThreadLibraries::cusolver() {
  if (!cusolver_) {
    cusolverDnHandle_t handle = nullptr;
    AB_CUDA(cusolverDnCreate(&handle));
    cusolver_.reset(handle);
    AB_CUDA(cusolverDnSetStream(handle, stream_.handle()));
  }
  return cusolver_.get();
}

CudnnConv& ThreadLibraries::conv(const CudnnConvKey& key) {
  return planned(convs_, key, stream_, "a new plan of a convolution", cudnn());
}
CudnnAttention& ThreadLibraries::attention(const CudnnAttentionKey& key) {
  return planned(attentions_, key, stream_, "a new plan of attention", cudnn());
}
CudnnMatmul& ThreadLibraries::matmul(const CudnnMatmulKey& key) {
  return planned(matmuls_, key, stream_, "a new plan of a matrix product", cudnn());
}
CublasLtGemm& ThreadLibraries::gemm(const GemmKey& key) {
  return planned(gemms_, key, stream_, "a new plan of a matrix product", cublaslt());
}

double milliseconds(cudaStream_t stream, const std::function<void()>& work) {
  const Event start = make_timed_event(), end = make_timed_event();
  AB_CUDA(cudaEventRecord(start.get(), stream));
  try {
    for (int launch = 0; launch < kLaunches; ++launch) work();
  } catch (const Error&) {
    return std::numeric_limits<double>::infinity();
  }
  AB_CUDA(cudaEventRecord(end.get(), stream));
  AB_CUDA(cudaEventSynchronize(end.get()));
  float elapsed = 0;
  AB_CUDA(cudaEventElapsedTime(&elapsed, start.get(), end.get()));
  return elapsed / kLaunches;
}

}  // namespace ab::cuda
