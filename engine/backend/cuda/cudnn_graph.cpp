// SPDX-License-Identifier: MIT
#include "engine/backend/cuda/cudnn_graph.h"

namespace ab::cuda {
namespace {

CudnnDescriptor pointwise(cudnnPointwiseMode_t mode, DType dtype) {
  CudnnDescriptor descriptor(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  descriptor.set(CUDNN_ATTR_POINTWISE_MODE, mode)
      .set(CUDNN_ATTR_POINTWISE_MATH_PREC, compute_type(dtype))
      .set(CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, CUDNN_PROPAGATE_NAN)  // a run that diverges must not look healthy
      .finalize();
  return descriptor;
}

struct ActivationModes {
  cudnnPointwiseMode_t forward, backward;
};

/// GELU: the exact one, with erf.
ActivationModes modes_of(Activation activation) {
  switch (activation) {
    case Activation::none: return {CUDNN_POINTWISE_IDENTITY, CUDNN_POINTWISE_IDENTITY};
    case Activation::relu: return {CUDNN_POINTWISE_RELU_FWD, CUDNN_POINTWISE_RELU_BWD};
    case Activation::gelu: return {CUDNN_POINTWISE_GELU_FWD, CUDNN_POINTWISE_GELU_BWD};
  }
  throw Bug("bug in abtrain: an activation that cuDNN does not have");
}

}  // namespace

cudnnDataType_t storage_type(DType dtype, std::string_view operation) {
  switch (dtype) {
    case DType::float32: return CUDNN_DATA_FLOAT;
    case DType::bfloat16: return CUDNN_DATA_BFLOAT16;
    case DType::float16: return CUDNN_DATA_HALF;
    case DType::float64: return CUDNN_DATA_DOUBLE;
    default: throw Error(ErrorKind::config, fmt::format("{}: a GPU cannot compute with {}", operation, name_of(dtype)));
  }
}

cudnnDataType_t compute_type(DType dtype) { return dtype == DType::float64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT; }

bool keeps_precision(const NumericalNotes& notes, DType dtype, bool tf32) {
  if (contains(notes, CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION)) return false;
  if (dtype != DType::float32) return true;
  if (contains(notes, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS)) return false;
  return tf32 || !contains(notes, CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
}

CudnnDescriptor pointwise_operation(cudnnPointwiseMode_t mode, DType dtype, const CudnnDescriptor& x,
                                    const CudnnDescriptor& b, const CudnnDescriptor& y) {
  CudnnDescriptor operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, pointwise(mode, dtype))
      .set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x)
      .set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b)
      .set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y)
      .finalize();
  return operation;
}

CudnnDescriptor pointwise_operation(cudnnPointwiseMode_t mode, DType dtype, const CudnnDescriptor& x,
                                    const CudnnDescriptor& y) {
  CudnnDescriptor operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, pointwise(mode, dtype))
      .set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x)
      .set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y)
      .finalize();
  return operation;
}

CudnnDescriptor reduction_operation(cudnnReduceTensorOp_t what, const CudnnDescriptor& x, const CudnnDescriptor& y) {
  CudnnDescriptor reduction(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  reduction.set(CUDNN_ATTR_REDUCTION_OPERATOR, what)
      .set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT)
      .set(CUDNN_ATTR_REDUCTION_IS_DETERMINISTIC, true)
      .finalize();
  CudnnDescriptor operation(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, reduction)
      .set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x)
      .set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y)
      .finalize();
  return operation;
}

CudnnDescriptor matmul_operation(DType dtype, const CudnnDescriptor& x, const CudnnDescriptor& b,
                                 const CudnnDescriptor& y) {
  CudnnDescriptor matmul(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  matmul.set(CUDNN_ATTR_MATMUL_COMP_TYPE, compute_type(dtype)).finalize();
  CudnnDescriptor operation(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_MATMUL_DESC, matmul)
      .set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, x)
      .set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, b)
      .set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, y)
      .finalize();
  return operation;
}

CudnnDescriptor activation_operation(Activation activation, DType dtype, const CudnnDescriptor& z,
                                     const CudnnDescriptor& y) {
  return pointwise_operation(modes_of(activation).forward, dtype, z, y);
}

CudnnDescriptor activation_grad_operation(Activation activation, DType dtype, const CudnnDescriptor& dy,
                                          const CudnnDescriptor& saved, const CudnnDescriptor& dz) {
  CudnnDescriptor operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, pointwise(modes_of(activation).backward, dtype))
      .set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, saved)
      .set(CUDNN_ATTR_OPERATION_POINTWISE_DYDESC, dy)
      .set(CUDNN_ATTR_OPERATION_POINTWISE_DXDESC, dz)
      .finalize();
  return operation;
}

CudnnDescriptor operation_graph(const std::vector<CudnnDescriptor>& operations, const CudnnTarget& target) {
  CudnnDescriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, operations);
  target.name_in_graph(graph);
  graph.finalize();
  return graph;
}

void execute(cudnnHandle_t handle, const CudnnPlan& plan, std::span<const CudnnOperand> operands, void* workspace) {
  std::vector<std::int64_t> ids;
  std::vector<void*> addresses;
  for (const CudnnOperand& operand : operands) {
    if (!operand.address) continue;
    ids.push_back(operand.id);
    addresses.push_back(operand.address);
  }
  CudnnDescriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, std::span<const std::int64_t>(ids))
      .set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, std::span<void* const>(addresses))
      .set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, workspace)
      .finalize();
  AB_CUDA(cudnnBackendExecute(handle, plan.descriptor.raw(), pack.raw()));
}

}  // namespace ab::cuda
