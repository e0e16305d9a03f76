// SPDX-License-Identifier: MIT
#include "engine/backend/cuda/cudnn_matmul.h"

#include <utility>

#include "engine/backend/cuda/cudnn_graph.h"

namespace ab::cuda {
namespace {

enum MatrixId : std::int64_t { kA = 1, kB = 2, kC = 3, kBiasRow = 4, kAB = 5, kZ = 6, kSavedZ = 7 };

/// A tensor between two operations: without an address, and not rounded on the way.
bool is_virtual(MatrixId id, const CudnnMatmulKey& key) { return id == kAB || (id == kZ && !key.stores_z); }

/// cuDNN multiplies batches: ours have one matrix.
CudnnDescriptor matrix(MatrixId id, const CudnnMatmulKey& key, std::int64_t rows, std::int64_t columns,
                       bool transposed = false) {
  const bool inner = is_virtual(id, key);
  CudnnDescriptor tensor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  tensor.set(CUDNN_ATTR_TENSOR_DATA_TYPE, inner ? compute_type(key.dtype) : storage_type(key.dtype, "gemm"))
      .set(CUDNN_ATTR_TENSOR_DIMENSIONS, {std::int64_t{1}, rows, columns})
      .set(CUDNN_ATTR_TENSOR_STRIDES,
           {rows * columns, transposed ? std::int64_t{1} : columns, transposed ? rows : std::int64_t{1}})
      .set(CUDNN_ATTR_TENSOR_UNIQUE_ID, std::int64_t{id})
      .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, inner ? kCudnnAlignment : key.alignment)
      .set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, inner)
      .finalize();
  return tensor;
}

CudnnDescriptor product_operation(const CudnnMatmulKey& key, const CudnnDescriptor& product) {
  return matmul_operation(key.dtype, matrix(kA, key, key.m, key.k, key.transpose_a),
                          matrix(kB, key, key.k, key.n, key.transpose_b), product);
}

CudnnDescriptor graph_of(const CudnnMatmulKey& key, const CudnnTarget& target) {
  const auto result = [&](MatrixId id) { return matrix(id, key, key.m, key.n); };
  std::vector<CudnnDescriptor> operations;
  if (key.grad != Activation::none) {
    operations.push_back(product_operation(key, result(kAB)));
    operations.push_back(activation_grad_operation(key.grad, key.dtype, result(kAB), result(kSavedZ), result(kC)));
  } else {
    operations.push_back(product_operation(key, result(key.has_bias ? kAB : kZ)));
    if (key.has_bias)
      operations.push_back(pointwise_operation(CUDNN_POINTWISE_ADD, key.dtype, result(kAB),
                                               matrix(kBiasRow, key, 1, key.n), result(kZ)));
    operations.push_back(activation_operation(key.activation, key.dtype, result(kZ), result(kC)));
  }
  return operation_graph(operations, target);
}

}  // namespace

CudnnMatmul::CudnnMatmul(const CudnnMatmulKey& key, const CudnnTarget& target) {
  const auto is_precise = [&](const NumericalNotes& notes) { return keeps_precision(notes, key.dtype, key.tf32); };
  try {
    graph_ = graph_of(key, target);
    std::vector<CudnnPlan> plans = find_plans(*graph_, target, PlanChoice::deterministic, is_precise);
    if (!plans.empty()) plan_ = std::move(plans.front());
  } catch (const Error&) {
    // cuDNN refuses some graphs as a whole; there is the way without it.
  }
}

void CudnnMatmul::keep(std::size_t i) {
  if (is_fused(i)) has_separate_ = false;
  else plan_.reset();
}

void CudnnMatmul::execute(cudnnHandle_t handle, const CudnnMatmulData& data, void* workspace) const {
  const CudnnOperand operands[] = {{kA, data.a},          {kB, data.b}, {kC, data.c},
                                   {kBiasRow, data.bias}, {kZ, data.z}, {kSavedZ, data.saved}};
  cuda::execute(handle, plan_.value(), operands, workspace);
}

}  // namespace ab::cuda
