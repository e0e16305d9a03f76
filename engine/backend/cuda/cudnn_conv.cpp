// SPDX-License-Identifier: MIT
#include "engine/backend/cuda/cudnn_conv.h"

#include <utility>

#include "engine/backend/cuda/cudnn_graph.h"

namespace ab::cuda {
namespace {

enum TensorId : std::int64_t {
  kX = 1,
  kW = 2,
  kY = 3,
  kBias = 4,
  kProduct = 5,
  kSum = 6,
  kSaved = 7,
  kSquare = 8,
  kSums = 9,
  kSumsOfSquares = 10
};

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

/// cuDNN lists dimensions as batch, channel, row, column; channels lie innermost in memory. A filter has its
/// output channels in place of the batch.
CudnnDescriptor channels_last_tensor(TensorId id, const CudnnConvKey& key, std::int64_t n, std::int64_t c,
                                     std::int64_t h, std::int64_t w) {
  CudnnDescriptor tensor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  // A tensor between two operations has no address, and is not rounded.
  const bool is_virtual = id == kProduct || id == kSum || id == kSquare;
  tensor.set(CUDNN_ATTR_TENSOR_DATA_TYPE, is_virtual ? compute_type(key.dtype) : storage_type(key.dtype, "conv2d"))
      .set(CUDNN_ATTR_TENSOR_DIMENSIONS, {n, c, h, w})
      .set(CUDNN_ATTR_TENSOR_STRIDES, {h * w * c, std::int64_t{1}, w * c, c})
      .set(CUDNN_ATTR_TENSOR_UNIQUE_ID, std::int64_t{id})
      .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, is_virtual ? kCudnnAlignment : key.alignment)
      .set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, is_virtual)
      .finalize();
  return tensor;
}

/// In the shape of y.
CudnnDescriptor output_tensor(TensorId id, const CudnnConvKey& key) {
  const Conv2dSpec& s = key.spec;
  return channels_last_tensor(id, key, s.batch, s.out_channels, s.out_height(), s.out_width());
}

/// In the shape of x.
CudnnDescriptor input_tensor(TensorId id, const CudnnConvKey& key) {
  const Conv2dSpec& s = key.spec;
  return channels_last_tensor(id, key, s.batch, s.in_channels, s.height, s.width);
}

CudnnDescriptor conv_geometry(const CudnnConvKey& key) {
  const Conv2dSpec& s = key.spec;
  CudnnDescriptor geometry(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  geometry.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, std::int64_t{2})
      .set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, compute_type(key.dtype))
      .set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CROSS_CORRELATION)
      .set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, {s.padding.h, s.padding.w})
      .set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, {s.padding.h, s.padding.w})
      .set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, {s.stride.h, s.stride.w})
      .set(CUDNN_ATTR_CONVOLUTION_DILATIONS, {s.dilation, s.dilation})
      .finalize();
  return geometry;
}

TensorId written_by(ConvDirection direction) {
  return direction == ConvDirection::forward ? kY : direction == ConvDirection::backward_data ? kX : kW;
}

/// `result` takes the place of the tensor that the direction writes.
/// The number of groups is not an attribute: cuDNN divides the channels of x by those of the filter.
CudnnDescriptor conv_operation(const CudnnConvKey& key, TensorId result) {
  const auto role = [&](TensorId id) { return id == written_by(key.direction) ? result : id; };
  const Conv2dSpec& s = key.spec;
  const OperationNames names = operation_names(key.direction);
  CudnnDescriptor operation(names.descriptor);
  operation.set(names.geometry, conv_geometry(key))
      .set(names.x, input_tensor(role(kX), key))
      .set(names.w, channels_last_tensor(kW, key, s.out_channels, s.in_channels / s.groups, s.kernel_h, s.kernel_w))
      .set(names.y, output_tensor(role(kY), key));
  if (key.dtype == DType::float64) operation.set(names.alpha, 1.0).set(names.beta, 0.0);
  else operation.set(names.alpha, 1.0f).set(names.beta, 0.0f);
  operation.finalize();
  return operation;
}

/// to = Σ from over all pixels, per channel, in the same order each time
CudnnDescriptor sum_operation(const CudnnConvKey& key, TensorId from, TensorId to) {
  CudnnConvKey of_sums = key;
  of_sums.dtype = DType::float32;
  of_sums.alignment = sizeof(float);
  return reduction_operation(CUDNN_REDUCE_TENSOR_ADD, output_tensor(from, key),
                             channels_last_tensor(to, of_sums, 1, key.spec.out_channels, 1, 1));
}

/// forward: convolution → + bias → activation → y, each of the last two where the key asks for it, and likewise Σ y and Σ y²
/// backward_data: convolution → · act'(z) → x
CudnnDescriptor graph_of(const CudnnConvKey& key, const CudnnTarget& target) {
  const bool has_activation = key.activation != Activation::none;
  std::vector<CudnnDescriptor> operations;
  operations.push_back(conv_operation(key, key.has_epilogue() ? kProduct : written_by(key.direction)));
  if (key.has_bias)
    operations.push_back(pointwise_operation(CUDNN_POINTWISE_ADD, key.dtype, output_tensor(kProduct, key),
                                             channels_last_tensor(kBias, key, 1, key.spec.out_channels, 1, 1),
                                             output_tensor(has_activation ? kSum : kY, key)));
  if (has_activation)
    operations.push_back(activation_operation(
        key.activation, key.dtype, output_tensor(key.has_bias ? kSum : kProduct, key), output_tensor(kY, key)));
  if (key.grad != Activation::none)
    operations.push_back(activation_grad_operation(key.grad, key.dtype, input_tensor(kProduct, key),
                                                   input_tensor(kSaved, key), input_tensor(kX, key)));
  if (key.has_sums) {
    operations.push_back(pointwise_operation(CUDNN_POINTWISE_MUL, key.dtype, output_tensor(kY, key),
                                             output_tensor(kY, key), output_tensor(kSquare, key)));
    operations.push_back(sum_operation(key, kY, kSums));
    operations.push_back(sum_operation(key, kSquare, kSumsOfSquares));
  }
  return operation_graph(operations, target);
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

CudnnConv::CudnnConv(const CudnnConvKey& key, const CudnnTarget& target) : out_channels_(key.spec.out_channels) {
  CudnnConvKey without_sums = key, bare = key;
  without_sums.has_sums = bare.has_sums = bare.has_bias = false;
  bare.activation = bare.grad = Activation::none;
  const auto add_plans = [&](const CudnnConvKey& part, PlanChoice choice) {
    graphs_.push_back(graph_of(part, target));
    const auto is_precise = [&](const NumericalNotes& notes) { return keeps_precision(notes, key.dtype, key.tf32); };
    for (CudnnPlan& plan : find_plans(graphs_.back(), target, choice, is_precise))
      candidates_.push_back({std::move(plan), part.has_epilogue(), part.has_sums});
  };
  const auto try_to_add_plans = [&](const CudnnConvKey& part, PlanChoice choice) {
    try {
      add_plans(part, choice);
    } catch (const Error&) {
      // cuDNN refuses some graphs as a whole; there are the plans of the convolution alone.
    }
  };
  // A fused plan that does not repeat is not worth its gain: two separate steps do repeat. The run waits some three
  // seconds for a plan that cuDNN compiles, those with the gradient of an activation or with sums: one of each is enough.
  const bool one_repeats = key.choice == PlanChoice::heuristic || key.grad != Activation::none;
  const bool may_be_product = key.has_sums && key.spec.is_pointwise();
  if (may_be_product) candidates_.push_back({std::nullopt, false, false});
  if (key.has_epilogue() && !may_be_product)
    try_to_add_plans(without_sums, one_repeats ? PlanChoice::deterministic : key.choice);
  if (candidates_.empty() || (key.choice == PlanChoice::timed && !may_be_product)) add_plans(bare, key.choice);
  if (key.has_sums && key.choice == PlanChoice::timed) try_to_add_plans(key, PlanChoice::deterministic);
  if (!candidates_.empty()) return;

  const Conv2dSpec& s = key.spec;
  const bool repeats = key.choice == PlanChoice::deterministic;
  throw Error(
      ErrorKind::communication,
      fmt::format("cuDNN {} has no plan{} for conv2d {} in {} (batch {}, {}×{}, {} → {} channels, kernel {}×{}, "
                  "stride {}, padding {}, dilation {}, groups {}); try a different batch size or element type{}",
                  cudnnGetVersion(), repeats ? " that repeats bit for bit" : "", name_of(key.direction),
                  ab::name_of(key.dtype), s.batch, s.height, s.width, s.in_channels, s.out_channels, s.kernel_h,
                  s.kernel_w, s.stride.str(), s.padding.str(), s.dilation, s.groups,
                  repeats ? ", or leave out --deterministic" : ""));
}

void CudnnConv::keep(std::size_t i) {
  if (i != 0) std::swap(candidates_[0], candidates_[i]);
  candidates_.erase(candidates_.begin() + 1, candidates_.end());
}

void CudnnConv::execute(cudnnHandle_t handle, const CudnnConvData& data, void* workspace, std::size_t i) const {
  const Candidate& candidate = candidates_[i];
  float* const sums = candidate.has_sums ? data.sums : nullptr;
  const CudnnOperand operands[] = {{kX, data.x},
                                   {kW, data.w},
                                   {kY, data.y},
                                   {kBias, candidate.is_fused ? data.bias : nullptr},
                                   {kSaved, candidate.is_fused ? data.saved : nullptr},
                                   {kSums, sums},
                                   {kSumsOfSquares, sums ? sums + out_channels_ : nullptr}};
  cuda::execute(handle, *candidate.plan, operands, workspace);
}

}  // namespace ab::cuda
