#pragma once
// SPDX-License-Identifier: MIT
//
// What cuDNN's graphs of convolutions, matrix products and attention have in common: types, what comes after the product, and
// how a plan is run.

#include <span>
#include <vector>

#include "engine/backend/backend.h"
#include "engine/backend/cuda/cudnn_plan.h"

namespace ab::cuda {

/// The alignment of tensors that plans make use of, in bytes, and no more.
inline constexpr std::int64_t kCudnnAlignment = 16;

/// cuDNN's name of a type in memory; throws Error(config), naming `operation`, for one that it does not compute with.
cudnnDataType_t storage_type(DType dtype, std::string_view operation);
/// What sums are kept in, and what goes from one operation of a graph to the next.
cudnnDataType_t compute_type(DType dtype);

/// Tensor cores round float32 operands to TF32 before they multiply; other plans turn them into 16 bits.
bool keeps_precision(const NumericalNotes& notes, DType dtype, bool tf32);

/// y = x + b (CUDNN_POINTWISE_ADD) or y = x · b (CUDNN_POINTWISE_MUL)
CudnnDescriptor pointwise_operation(cudnnPointwiseMode_t mode, DType dtype, const CudnnDescriptor& x,
                                    const CudnnDescriptor& b, const CudnnDescriptor& y);
/// y = act(z); NaN stays NaN.
CudnnDescriptor activation_operation(Activation activation, DType dtype, const CudnnDescriptor& z,
                                     const CudnnDescriptor& y);
/// dz = dy · act'(z), from what ActivationGrad saved.
CudnnDescriptor activation_grad_operation(Activation activation, DType dtype, const CudnnDescriptor& dy,
                                          const CudnnDescriptor& saved, const CudnnDescriptor& dz);

/// y = f(x), of modes with one operand.
CudnnDescriptor pointwise_operation(cudnnPointwiseMode_t mode, DType dtype, const CudnnDescriptor& x,
                                    const CudnnDescriptor& y);
/// y = the sum or maximum of x along the dimensions in which y has one element, in the same order each time; in float32.
CudnnDescriptor reduction_operation(cudnnReduceTensorOp_t what, const CudnnDescriptor& x, const CudnnDescriptor& y);
/// y = x · b, sums in compute_type(dtype).
CudnnDescriptor matmul_operation(DType dtype, const CudnnDescriptor& x, const CudnnDescriptor& b,
                                 const CudnnDescriptor& y);

CudnnDescriptor operation_graph(const std::vector<CudnnDescriptor>& operations, const CudnnTarget& target);

/// A tensor of a graph, by its number there, and where it lies.
struct CudnnOperand {
  std::int64_t id;
  void* address;
};
/// Runs on the stream of `handle`. Operands without an address are left out.
void execute(cudnnHandle_t handle, const CudnnPlan& plan, std::span<const CudnnOperand> operands, void* workspace);

}  // namespace ab::cuda
