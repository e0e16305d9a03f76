#pragma once
// SPDX-License-Identifier: MIT
//
// Graphs of cuDNN and their execution plans: what those of convolutions, matrix products and attention share.

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "engine/backend/backend.h"
#include "engine/backend/cuda/cudnn_descriptor.h"
#include "engine/backend/plan_choice.h"

namespace ab::cuda {

using NumericalNotes = std::vector<cudnnBackendNumericalNote_t>;

/// The target of a plan: the GPU behind a handle, on which it will run, or one that is described and need not be
/// there, for a plan that is only looked at. A graph and what is planned for it name the same one.
struct CudnnTarget {
  CudnnTarget(cudnnHandle_t of) : handle(of) { AB_ASSERT(handle); }
  CudnnTarget(const CudnnDescriptor& properties) : device_properties(&properties) {}

  cudnnHandle_t handle = nullptr;
  const CudnnDescriptor* device_properties = nullptr;  ///< null where there is a handle
};

/// A graph made ready to run.
struct CudnnPlan {
  CudnnDescriptor descriptor;
  std::size_t workspace_bytes = 0;
  bool is_deterministic = true;
};

bool contains(const NumericalNotes& notes, cudnnBackendNumericalNote_t note);

/// The plans to choose from, in cuDNN's order of preference: several for PlanChoice::timed, otherwise one; none when
/// cuDNN has none whose `is_precise(notes)`.
std::vector<CudnnPlan> find_plans(const CudnnDescriptor& graph, const CudnnTarget& target, PlanChoice choice,
                                  const std::function<bool(const NumericalNotes&)>& is_precise);

/// The alignment of tensors that plans make use of, in bytes, and no more.
inline constexpr std::int64_t kCudnnAlignment = 16;

/// cuDNN's name of a type in memory; throws Error(config), naming `operation`, for one that it does not compute with.
cudnnDataType_t storage_type(DType dtype, std::string_view operation);
/// The type of sums, and of what goes from one operation of a graph to the next.
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

/// y is x's memory, by other strides.
CudnnDescriptor reshape_operation(const CudnnDescriptor& x, const CudnnDescriptor& y);

CudnnDescriptor operation_graph(const std::vector<CudnnDescriptor>& operations, const CudnnTarget& target);

/// A tensor of a graph, by its number there, and where it lies.
struct CudnnOperand {
  std::int64_t id;
  void* address;
};
/// Runs on the stream of `handle`. Operands without an address are left out.
void execute(cudnnHandle_t handle, const CudnnPlan& plan, std::span<const CudnnOperand> operands, void* workspace);

}  // namespace ab::cuda
