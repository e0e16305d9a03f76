// SPDX-License-Identifier: MIT
#include "engine/backend/cuda/cudnn_attention.h"

#include <cmath>
#include <functional>
#include <utility>

#include "engine/backend/cuda/cudnn_graph.h"

namespace ab::cuda {
namespace {

using Operation = GraphNode::Operation;
using Place = GraphTensor::Place;

CudnnDescriptor tensor(const GraphTensor& t) {
  const bool is_number = t.place == Place::number;
  CudnnDescriptor descriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  descriptor.set(CUDNN_ATTR_TENSOR_DATA_TYPE, storage_type(t.dtype, "attention"))
      .set(CUDNN_ATTR_TENSOR_DIMENSIONS, std::span<const std::int64_t>(t.dims))
      .set(CUDNN_ATTR_TENSOR_STRIDES, std::span<const std::int64_t>(t.strides))
      .set(CUDNN_ATTR_TENSOR_UNIQUE_ID, t.id)
      .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, is_number ? std::int64_t{sizeof(float)} : kCudnnAlignment)
      .set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, t.place == Place::between)
      .set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, is_number)
      .finalize();
  return descriptor;
}

cudnnPointwiseMode_t pointwise_mode(Operation operation) {
  switch (operation) {
    case Operation::multiply: return CUDNN_POINTWISE_MUL;
    case Operation::add: return CUDNN_POINTWISE_ADD;
    case Operation::subtract: return CUDNN_POINTWISE_SUB;
    case Operation::divide: return CUDNN_POINTWISE_DIV;
    case Operation::exp: return CUDNN_POINTWISE_EXP;
    case Operation::log: return CUDNN_POINTWISE_LOG;
    case Operation::identity: return CUDNN_POINTWISE_IDENTITY;
    default: throw Bug("bug in abtrain: not an element-wise operation");
  }
}

CudnnDescriptor reshape_operation(const CudnnDescriptor& x, const CudnnDescriptor& y) {
  CudnnDescriptor operation(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x).set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y).finalize();
  return operation;
}

CudnnDescriptor operation(const GraphNode& node) {
  const CudnnDescriptor x = tensor(node.x), y = tensor(node.y);
  switch (node.operation) {
    case Operation::matmul: return matmul_operation(DType::float32, x, tensor(node.b), y);
    case Operation::reshape: return reshape_operation(x, y);
    case Operation::max: return reduction_operation(CUDNN_REDUCE_TENSOR_MAX, x, y);
    case Operation::sum: return reduction_operation(CUDNN_REDUCE_TENSOR_ADD, x, y);
    default:
      if (!has_b(node.operation)) return pointwise_operation(pointwise_mode(node.operation), DType::float32, x, y);
      return pointwise_operation(pointwise_mode(node.operation), DType::float32, x, tensor(node.b), y);
  }
}

CudnnDescriptor described(const AttentionGraph& graph, const CudnnTarget& target) {
  std::vector<CudnnDescriptor> operations;
  for (const GraphNode& node : graph) operations.push_back(operation(node));
  return operation_graph(operations, target);
}

}  // namespace

std::size_t CudnnAttentionKeyHash::operator()(const CudnnAttentionKey& key) const {
  std::size_t hash = 0;
  for (std::int64_t v : {key.spec.samples, key.spec.heads, key.spec.tokens, key.spec.width,
                         static_cast<std::int64_t>(key.spec.dtype), std::int64_t{key.deterministic}})
    hash = hash * 0x9E3779B97F4A7C15u + std::hash<std::int64_t>{}(v);
  return hash;
}

CudnnAttention::CudnnAttention(const CudnnAttentionKey& key, const CudnnTarget& target)
    : deterministic_(key.deterministic),
      scale_(static_cast<float>(1 / std::sqrt(static_cast<double>(key.spec.width)))) {
  const auto is_precise = [&](const NumericalNotes& notes) { return keeps_precision(notes, key.spec.dtype, false); };
  try {
    for (const AttentionGraph& graph :
         {attention_forward_graph(key.spec), attention_backward_graph(key.spec, key.deterministic)}) {
      graphs_.push_back(described(graph, target));
      std::vector<CudnnPlan> found = find_plans(graphs_.back(), target, PlanChoice::heuristic, is_precise);
      if (found.empty()) break;
      // cuDNN notes nothing of the order in which the backward kernel adds up dQ; the graph decides it.
      found.front().is_deterministic = key.deterministic || plans_.empty();
      plans_.push_back(std::move(found.front()));
    }
  } catch (const Error&) {
    // cuDNN refuses the graph as a whole; there are the products.
  }
  if (plans_.size() < 2) plans_.clear();
}

void CudnnAttention::execute(cudnnHandle_t handle, const CudnnPlan& plan, const Addresses& addresses, void* workspace) {
  std::vector<CudnnOperand> operands;
  for (const auto& [id, address] : addresses) operands.push_back({static_cast<std::int64_t>(id), address});
  operands.push_back({static_cast<std::int64_t>(AttentionTensor::scale), &scale_});
  if (addresses.contains(AttentionTensor::dy))
    operands.push_back({static_cast<std::int64_t>(AttentionTensor::one), &one_});
  cuda::execute(handle, plan, operands, workspace);
}

}  // namespace ab::cuda
