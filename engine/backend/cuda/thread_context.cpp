// SPDX-License-Identifier: MIT
#include "engine/backend/cuda/thread_context.h"

#include <limits>
#include <vector>

#include "engine/backend/cuda/check.h"
#include "engine/backend/cuda/device.h"
#include "engine/backend/cuda/launch_target.h"
#include "engine/backend/cuda/memory.h"
#include "engine/backend/cuda/stream.h"

namespace ab::cuda {
namespace {

// Reductions that repeat bit for bit (cudnn_conv.cpp) came with this version.
constexpr std::size_t kOldestCudnn = 91100;
static_assert(CUDNN_VERSION >= kOldestCudnn, "abtrain needs the headers of cuDNN 9.11 or newer");

// Trivial, so that destructors which run after the contexts are gone may still ask.
thread_local bool thread_is_ending = false;

struct Contexts {
  std::vector<std::unique_ptr<ThreadContext>> by_device;
  ~Contexts() { thread_is_ending = true; }
};
thread_local Contexts contexts;

}  // namespace

ThreadContext& ThreadContext::current(int device_index) {
  AB_ASSERT(!thread_is_ending);
  const auto i = static_cast<std::size_t>(device_index);
  auto& by_device = contexts.by_device;
  const bool is_known = i < by_device.size() && by_device[i];  // asked for at every launch
  if (!is_known) check_cuda_device(device_index);
  AB_CUDA(cudaSetDevice(device_index));
  if (is_known) return *by_device[i];
  if (by_device.size() <= i) by_device.resize(i + 1);
  by_device[i].reset(new ThreadContext(device_index));
  return *by_device[i];
}

ThreadContext* ThreadContext::current_if_alive(int device_index) noexcept {
  if (thread_is_ending) return nullptr;
  try {
    return &current(device_index);
  } catch (const std::exception&) {
    return nullptr;
  }
}

ThreadContext::ThreadContext(int device_index) : device_index_(device_index), stream_(make_stream()) {
  AB_CUDA(cudaDeviceGetAttribute(&multiprocessors_, cudaDevAttrMultiProcessorCount, device_index));

  // Released blocks stay in the pool: giving them back to the system at every synchronisation would be slow.
  cudaMemPool_t pool = nullptr;
  AB_CUDA(cudaDeviceGetDefaultMemPool(&pool, device_index));
  auto keep_all = std::numeric_limits<std::uint64_t>::max();
  AB_CUDA(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep_all));
}

ThreadContext::~ThreadContext() {
  (void)cudaSetDevice(device_index_);
  (void)cudaStreamSynchronize(stream());
  workspace_.reset();  // at the end of a thread this is not ordered with the stream
}

cublasLtHandle_t ThreadContext::cublaslt() {
  if (!cublaslt_) {
    cublasLtHandle_t handle = nullptr;
    AB_CUDA(cublasLtCreate(&handle));
    cublaslt_.reset(handle);
  }
  return cublaslt_.get();
}

cudnnHandle_t ThreadContext::cudnn() {
  if (!cudnn_) {
    AB_CHECK_KIND(
        communication, cudnnGetVersion() >= kOldestCudnn,
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
    AB_CUDA(cudnnSetStream(handle, stream()));
  }
  return cudnn_.get();
}

cusolverDnHandle_t ThreadContext::cusolver() {
  if (!cusolver_) {
    cusolverDnHandle_t handle = nullptr;
    AB_CUDA(cusolverDnCreate(&handle));
    cusolver_.reset(handle);
    AB_CUDA(cusolverDnSetStream(handle, stream()));
  }
  return cusolver_.get();
}

PinnedStaging& ThreadContext::staging() {
  if (!staging_) staging_ = std::make_unique<PinnedStaging>();
  return *staging_;
}

const std::shared_ptr<PinnedSlots>& ThreadContext::pinned_slots() {
  if (!pinned_slots_) pinned_slots_ = std::make_shared<PinnedSlots>();
  return pinned_slots_;
}

void* ThreadContext::workspace(std::size_t bytes) {
  if (bytes > workspace_bytes_) {
    refuse_in_capture("a larger workspace");
    CudaMemory& memory = device_memory(device_index_);
    workspace_.reset();
    workspace_bytes_ = 0;
    workspace_ = {memory.allocate(bytes), [&memory, bytes](void* block) { memory.release(block, bytes); }};
    workspace_bytes_ = bytes;
  }
  return workspace_.get();
}

void ThreadContext::refuse_in_capture(const char* what) const {
  if (capture_) throw Bug(fmt::format("{} inside a captured step: a CUDA graph cannot repeat it", what));
}

CudnnConv& ThreadContext::conv(const CudnnConvKey& key) {
  if (const auto it = convs_.find(key); it != convs_.end()) return it->second;
  refuse_in_capture("a new plan of a convolution");
  return convs_.try_emplace(key, key, cudnn()).first->second;
}

CudnnMatmul& ThreadContext::matmul(const CudnnMatmulKey& key) {
  if (const auto it = matmuls_.find(key); it != matmuls_.end()) return it->second;
  refuse_in_capture("a new plan of a matrix product");
  return matmuls_.try_emplace(key, key, cudnn()).first->second;
}

CublasLtGemm& ThreadContext::gemm(const GemmKey& key) {
  if (const auto it = gemms_.find(key); it != gemms_.end()) return it->second;
  refuse_in_capture("a new plan of a matrix product");
  return gemms_.try_emplace(key, cublaslt(), key).first->second;
}

LaunchTarget launch_target(int device_index) {
  const ThreadContext& context = ThreadContext::current(device_index);
  return {context.stream(), context.multiprocessors()};
}

void check_launch() {
  const cudaError_t status = cudaGetLastError();
  AB_CHECK_KIND(
      communication, status != cudaErrorNoKernelImageForDevice,
      "this build has no kernels for this GPU; set CMAKE_CUDA_ARCHITECTURES to its compute capability");
  check_status(status, "the launch of a kernel");
}

}  // namespace ab::cuda
