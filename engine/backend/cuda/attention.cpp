// SPDX-License-Identifier: MIT
#include "engine/backend/cuda/cuda_backend.h"

#include <limits>
#include <mutex>

#include "engine/backend/cuda/cudnn_graph.h"
#include "engine/backend/plan_choice.h"
#include "engine/core/say.h"

namespace ab::cuda {
namespace {

/// Blocks of 128 keys add to dQ as they finish. The order of two does not matter, as they add to zero.
constexpr std::int64_t kTokensInAnyOrder = 256;

CudnnAttention& attention_for(ThreadLibraries& libraries, const AttentionSpec& spec) {
  const bool in_order = plan_choice() == PlanChoice::deterministic || spec.tokens > kTokensInAnyOrder;
  return libraries.attention({spec, in_order});
}

/// Q, K or V of a packed qkv.
void* part(const AttentionSpec& spec, const Tensor& packed, int index) {
  return static_cast<std::byte*>(packed.raw()) +
         offset_of_part(spec, index) * static_cast<std::int64_t>(size_of(packed.dtype()));
}

/// The kernels read memory through descriptors that know no smaller unit.
void* aligned(const Tensor& t) {
  AB_ASSERT(alignment_of(t, kCudnnAlignment) == kCudnnAlignment);
  return t.raw();
}

/// Its first number: 9 of Hopper.
int compute_capability(int device_index) {
  int major = 0;
  AB_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device_index));
  return major;
}

void warn_of_old_cudnn(std::size_t version) {
  static std::once_flag told;
  std::call_once(told, [&] {
    say(stderr,
        "warning: cuDNN {}.{}.{} is older than 9.15.1: attention takes several kernels in place of one; put the folder of a newer "
        "libcudnn.so.9 first on LD_LIBRARY_PATH\n",
        version / 10000, version / 100 % 100, version % 100);
  });
}

}  // namespace

bool CudaBackend::has_fused_attention(const AttentionSpec& spec) {
  // On newer GPUs than Hopper the graph alone may not decide the order of the sums.
  if (plan_choice() == PlanChoice::deterministic && compute_capability(device_index_) > 9) return false;
  const std::size_t version = cudnnGetVersion();
  if (can_fuse_attention(spec, version)) return attention_for(libraries(), spec).exists();
  if (can_fuse_attention(spec, std::numeric_limits<std::size_t>::max())) warn_of_old_cudnn(version);
  return false;
}

void CudaBackend::attention_forward(const AttentionSpec& spec, const Tensor& qkv, const Tensor& y,
                                    const Tensor& log_sums) {
  ThreadLibraries& libraries = this->libraries();
  CudnnAttention& attention = attention_for(libraries, spec);
  aligned(qkv);
  attention.forward(libraries.cudnn(),
                    {{AttentionTensor::q, part(spec, qkv, 0)},
                     {AttentionTensor::k, part(spec, qkv, 1)},
                     {AttentionTensor::v, part(spec, qkv, 2)},
                     {AttentionTensor::y, aligned(y)},
                     {AttentionTensor::log_sums, aligned(log_sums)}},
                    libraries.stream().workspace(attention.forward_workspace_bytes()));
}

void CudaBackend::attention_backward(const AttentionSpec& spec, const AttentionBackward& of, const Tensor& dqkv) {
  ThreadLibraries& libraries = this->libraries();
  CudnnAttention& attention = attention_for(libraries, spec);
  aligned(of.qkv), aligned(dqkv);
  const Tensor row_sums(of.log_sums.shape(), DType::float32, dqkv.device());
  CudnnAttention::Addresses addresses{
      {AttentionTensor::q, part(spec, of.qkv, 0)},       {AttentionTensor::k, part(spec, of.qkv, 1)},
      {AttentionTensor::v, part(spec, of.qkv, 2)},       {AttentionTensor::y, aligned(of.y)},
      {AttentionTensor::log_sums, aligned(of.log_sums)}, {AttentionTensor::dy, aligned(of.dy)},
      {AttentionTensor::dq, part(spec, dqkv, 0)},        {AttentionTensor::dk, part(spec, dqkv, 1)},
      {AttentionTensor::dv, part(spec, dqkv, 2)},        {AttentionTensor::row_sums, aligned(row_sums)}};
  Tensor dq_sums;
  if (!attention.is_deterministic()) {
    dq_sums = Tensor(of.y.shape(), DType::float32, dqkv.device());
    addresses[AttentionTensor::dq_sums] = aligned(dq_sums);
  }
  attention.backward(libraries.cudnn(), addresses, libraries.stream().workspace(attention.backward_workspace_bytes()));
}

}  // namespace ab::cuda
