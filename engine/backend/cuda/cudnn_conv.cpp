// SPDX-License-Identifier: MIT
#include "engine/backend/cuda/cudnn_conv.h"

#include <algorithm>
#include <functional>

namespace ab::cuda {
namespace {

enum TensorId : std::int64_t { kX = 1, kW = 2, kY = 3 };

/// Plans that ask for more are passed over: memory is worth more to training than the last percent of speed.
constexpr std::int64_t kMaxWorkspaceBytes = std::int64_t{1} << 30;
constexpr std::int64_t kMaxCandidates = 64;

/// cuDNN's names for one direction of convolution.
struct OperationNames {
  cudnnBackendDescriptorType_t descriptor;
  cudnnBackendAttributeName_t geometry, x, w, y, alpha, beta;
};

OperationNames operation_names(ConvDirection direction) {
  switch (direction) {
    case ConvDirection::forward:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
    case ConvDirection::backward_data:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
    case ConvDirection::backward_weight: break;
  }
  return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
}

cudnnDataType_t storage_type(DType dtype) {
  switch (dtype) {
    case DType::float32: return CUDNN_DATA_FLOAT;
    case DType::bfloat16: return CUDNN_DATA_BFLOAT16;
    case DType::float16: return CUDNN_DATA_HALF;
    case DType::float64: return CUDNN_DATA_DOUBLE;
    default:
      throw Error(ErrorKind::config, fmt::format("conv2d: a GPU does not convolve {}", name_of(dtype)));
  }
}

cudnnDataType_t compute_type(DType dtype) {
  return dtype == DType::float64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
}

/// cuDNN lists dimensions as batch, channel, row, column; channels lie innermost in memory. A filter has its
/// output channels in place of the batch.
CudnnDescriptor channels_last_tensor(TensorId id, const CudnnConvKey& key, std::int64_t n, std::int64_t c,
                                     std::int64_t h, std::int64_t w) {
  CudnnDescriptor tensor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  tensor.set(CUDNN_ATTR_TENSOR_DATA_TYPE, storage_type(key.dtype))
      .set(CUDNN_ATTR_TENSOR_DIMENSIONS, {n, c, h, w})
      .set(CUDNN_ATTR_TENSOR_STRIDES, {h * w * c, std::int64_t{1}, w * c, c})
      .set(CUDNN_ATTR_TENSOR_UNIQUE_ID, std::int64_t{id})
      .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, key.alignment)
      .finalize();
  return tensor;
}

CudnnDescriptor conv_geometry(const CudnnConvKey& key) {
  const Conv2dSpec& s = key.spec;
  CudnnDescriptor geometry(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  geometry.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, std::int64_t{2})
      .set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, compute_type(key.dtype))
      .set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CROSS_CORRELATION)
      .set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, {s.padding, s.padding})
      .set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, {s.padding, s.padding})
      .set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, {s.stride, s.stride})
      .set(CUDNN_ATTR_CONVOLUTION_DILATIONS, {s.dilation, s.dilation})
      .finalize();
  return geometry;
}

/// The number of groups is not an attribute: cuDNN divides the channels of x by those of the filter.
CudnnDescriptor operation_graph(const CudnnConvKey& key) {
  const Conv2dSpec& s = key.spec;
  const OperationNames names = operation_names(key.direction);
  CudnnDescriptor operation(names.descriptor);
  operation.set(names.geometry, conv_geometry(key))
      .set(names.x, channels_last_tensor(kX, key, s.batch, s.in_channels, s.height, s.width))
      .set(names.w,
           channels_last_tensor(kW, key, s.out_channels, s.in_channels / s.groups, s.kernel_h, s.kernel_w))
      .set(names.y, channels_last_tensor(kY, key, s.batch, s.out_channels, s.out_height(), s.out_width()));
  if (key.dtype == DType::float64)
    operation.set(names.alpha, 1.0).set(names.beta, 0.0);
  else
    operation.set(names.alpha, 1.0f).set(names.beta, 0.0f);
  operation.finalize();

  CudnnDescriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, operation).finalize();
  return graph;
}

/// Configurations of engines for this graph, best first; empty when cuDNN has none in this mode.
std::vector<CudnnDescriptor> candidates(const CudnnDescriptor& graph,
                                        const CudnnDescriptor& device_properties,
                                        cudnnBackendHeurMode_t mode) {
  CudnnDescriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph)
      .set(CUDNN_ATTR_ENGINEHEUR_MODE, mode)
      .set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, device_properties);
  if (heuristics.try_finalize() != CUDNN_STATUS_SUCCESS) return {};
  return heuristics.get_descriptors(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR,
                                    kMaxCandidates);
}

std::vector<cudnnBackendNumericalNote_t> numerical_notes(const CudnnDescriptor& config) {
  const auto engine = config.get_descriptors(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR, 1);
  AB_ASSERT(!engine.empty());
  return engine[0].get_numerical_notes(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE);
}

bool contains(const std::vector<cudnnBackendNumericalNote_t>& notes, cudnnBackendNumericalNote_t note) {
  return std::ranges::find(notes, note) != notes.end();
}

/// Tensor cores round float32 operands to TF32 before they multiply; other plans turn them into 16 bits.
bool keeps_precision(const std::vector<cudnnBackendNumericalNote_t>& notes, const CudnnConvKey& key) {
  if (contains(notes, CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION)) return false;
  if (key.dtype != DType::float32) return true;
  if (contains(notes, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS)) return false;
  return key.tf32 || !contains(notes, CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
}

}  // namespace

std::string_view name_of(ConvDirection direction) {
  switch (direction) {
    case ConvDirection::forward: return "forward";
    case ConvDirection::backward_data: return "backward_data";
    case ConvDirection::backward_weight: return "backward_weight";
  }
  return "?";
}

std::size_t CudnnConvKeyHash::operator()(const CudnnConvKey& key) const {
  const Conv2dSpec& s = key.spec;
  std::size_t hash = 0;
  for (std::int64_t v : {s.batch, s.height, s.width, s.in_channels, s.out_channels, s.kernel_h, s.kernel_w,
                         s.stride, s.padding, s.dilation, s.groups, static_cast<std::int64_t>(key.direction),
                         static_cast<std::int64_t>(key.dtype), key.alignment, std::int64_t{key.tf32}})
    hash = hash * 0x9E3779B97F4A7C15u + std::hash<std::int64_t>{}(v);
  return hash;
}

CudnnConv::CudnnConv(const CudnnConvKey& key, const CudnnDescriptor& device_properties)
    : graph_(operation_graph(key)) {
  std::vector<CudnnDescriptor> nondeterministic;
  for (const auto mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK})
    for (CudnnDescriptor& config : candidates(graph_, device_properties, mode)) {
      const auto notes = numerical_notes(config);
      if (!keeps_precision(notes, key)) continue;
      if (contains(notes, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC))
        nondeterministic.push_back(std::move(config));
      else if (try_plan(config, device_properties))
        return;
    }
  is_deterministic_ = false;
  for (const CudnnDescriptor& config : nondeterministic)
    if (try_plan(config, device_properties)) return;

  const Conv2dSpec& s = key.spec;
  throw Error(
      ErrorKind::communication,
      fmt::format(
          "cuDNN {} has no plan for conv2d {} in {} (batch {}, {}×{}, {} → {} channels, kernel {}×{}, "
          "stride {}, padding {}, dilation {}, groups {}); try another batch size or element type",
          cudnnGetVersion(), name_of(key.direction), ab::name_of(key.dtype), s.batch, s.height, s.width,
          s.in_channels, s.out_channels, s.kernel_h, s.kernel_w, s.stride, s.padding, s.dilation, s.groups));
}

bool CudnnConv::try_plan(const CudnnDescriptor& config, const CudnnDescriptor& device_properties) {
  CudnnDescriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config)
      .set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, device_properties);
  if (plan.try_finalize() != CUDNN_STATUS_SUCCESS) return false;
  const std::int64_t workspace = plan.get_int64(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
  if (workspace > kMaxWorkspaceBytes) return false;
  workspace_bytes_ = static_cast<std::size_t>(workspace);
  plan_ = std::move(plan);
  return true;
}

void CudnnConv::execute(cudnnHandle_t handle, const void* x, const void* w, const void* y,
                        void* workspace) const {
  CudnnDescriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, {std::int64_t{kX}, std::int64_t{kW}, std::int64_t{kY}})
      .set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
           {const_cast<void*>(x), const_cast<void*>(w), const_cast<void*>(y)})
      .set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, workspace)
      .finalize();
  AB_CUDA(cudnnBackendExecute(handle, plan_->raw(), pack.raw()));
}

}  // namespace ab::cuda
