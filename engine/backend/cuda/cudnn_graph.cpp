// SPDX-License-Identifier: MIT
#include "engine/backend/cuda/cudnn_graph.h"

#include <algorithm>
#include <optional>

namespace ab::cuda {
namespace {

/// Plans that ask for more are passed over: memory is worth more to training than the last percent of speed.
constexpr std::int64_t kMaxWorkspaceBytes = std::int64_t{1} << 30;
/// Configurations that cuDNN is asked for.
constexpr std::int64_t kMaxConfigs = 64;
/// Plans that are timed; cuDNN's order is good enough that the best is among the first.
constexpr std::size_t kTimedPlans = 10;

/// Configurations of engines for this graph, best first; empty when cuDNN has none in this mode.
std::vector<CudnnDescriptor> configs_of(const CudnnDescriptor& graph, const CudnnTarget& target,
                                        cudnnBackendHeurMode_t mode) {
  CudnnDescriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph).set(CUDNN_ATTR_ENGINEHEUR_MODE, mode);
  // With a handle they know the device from their graph.
  if (!target.handle) heuristics.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *target.device_properties);
  if (heuristics.try_finalize() != CUDNN_STATUS_SUCCESS) return {};
  return heuristics.get_descriptors(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, kMaxConfigs);
}

NumericalNotes numerical_notes(const CudnnDescriptor& config) {
  const auto engine = config.get_descriptors(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR, 1);
  AB_ASSERT(!engine.empty());
  return engine[0].get_numerical_notes(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE);
}

/// A configuration need not work for the device after all.
std::optional<CudnnPlan> make_plan(const CudnnDescriptor& config, const CudnnTarget& target, bool is_deterministic) {
  CudnnDescriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
  if (target.handle) plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, target.handle);
  else plan.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, *target.device_properties);
  if (plan.try_finalize() != CUDNN_STATUS_SUCCESS) return {};
  const std::int64_t workspace = plan.get_int64(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
  if (workspace > kMaxWorkspaceBytes) return {};
  return CudnnPlan{std::move(plan), static_cast<std::size_t>(workspace), is_deterministic};
}

}  // namespace

bool contains(const NumericalNotes& notes, cudnnBackendNumericalNote_t note) {
  return std::ranges::find(notes, note) != notes.end();
}

std::vector<CudnnPlan> find_plans(const CudnnDescriptor& graph, const CudnnTarget& target, PlanChoice choice,
                                  const std::function<bool(const NumericalNotes&)>& is_precise) {
  const std::size_t wanted = choice == PlanChoice::timed ? kTimedPlans : 1;
  std::vector<CudnnPlan> plans;
  const auto try_config = [&](const CudnnDescriptor& config, bool is_deterministic) {
    if (plans.size() == wanted) return;
    if (auto plan = make_plan(config, target, is_deterministic)) plans.push_back(std::move(*plan));
  };

  std::vector<CudnnDescriptor> put_off;
  for (const auto mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    if (!plans.empty()) break;
    for (CudnnDescriptor& config : configs_of(graph, target, mode)) {
      const NumericalNotes notes = numerical_notes(config);
      if (!is_precise(notes)) continue;
      const bool is_deterministic = !contains(notes, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC);
      if (is_deterministic || choice == PlanChoice::timed) try_config(config, is_deterministic);
      else put_off.push_back(std::move(config));
    }
  }
  if (choice == PlanChoice::heuristic)
    for (const CudnnDescriptor& config : put_off) try_config(config, false);
  return plans;
}

namespace {

CudnnDescriptor pointwise(cudnnPointwiseMode_t mode, DType dtype) {
  CudnnDescriptor descriptor(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  descriptor.set(CUDNN_ATTR_POINTWISE_MODE, mode)
      .set(CUDNN_ATTR_POINTWISE_MATH_PREC, compute_type(dtype))
      .set(CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, CUDNN_PROPAGATE_NAN)  // a run that diverges must not look healthy
      .finalize();
  return descriptor;
}

struct Part {
  cudnnBackendAttributeName_t name;
  const CudnnDescriptor& descriptor;
};
CudnnDescriptor operation(cudnnBackendDescriptorType_t type, std::initializer_list<Part> parts) {
  CudnnDescriptor descriptor(type);
  for (const Part& part : parts) descriptor.set(part.name, part.descriptor);
  descriptor.finalize();
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
  return operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
                   {{CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, pointwise(mode, dtype)},
                    {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x},
                    {CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b},
                    {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y}});
}

CudnnDescriptor pointwise_operation(cudnnPointwiseMode_t mode, DType dtype, const CudnnDescriptor& x,
                                    const CudnnDescriptor& y) {
  return operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
                   {{CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, pointwise(mode, dtype)},
                    {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x},
                    {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y}});
}

CudnnDescriptor reduction_operation(cudnnReduceTensorOp_t what, const CudnnDescriptor& x, const CudnnDescriptor& y) {
  CudnnDescriptor reduction(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  reduction.set(CUDNN_ATTR_REDUCTION_OPERATOR, what)
      .set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT)
      .set(CUDNN_ATTR_REDUCTION_IS_DETERMINISTIC, true)
      .finalize();
  return operation(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, {{CUDNN_ATTR_OPERATION_REDUCTION_DESC, reduction},
                                                                  {CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x},
                                                                  {CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y}});
}

CudnnDescriptor matmul_operation(DType dtype, const CudnnDescriptor& x, const CudnnDescriptor& b,
                                 const CudnnDescriptor& y) {
  CudnnDescriptor matmul(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  matmul.set(CUDNN_ATTR_MATMUL_COMP_TYPE, compute_type(dtype)).finalize();
  return operation(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, {{CUDNN_ATTR_OPERATION_MATMUL_DESC, matmul},
                                                               {CUDNN_ATTR_OPERATION_MATMUL_ADESC, x},
                                                               {CUDNN_ATTR_OPERATION_MATMUL_BDESC, b},
                                                               {CUDNN_ATTR_OPERATION_MATMUL_CDESC, y}});
}

CudnnDescriptor reshape_operation(const CudnnDescriptor& x, const CudnnDescriptor& y) {
  return operation(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR,
                   {{CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x}, {CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y}});
}

CudnnDescriptor activation_operation(Activation activation, DType dtype, const CudnnDescriptor& z,
                                     const CudnnDescriptor& y) {
  return pointwise_operation(modes_of(activation).forward, dtype, z, y);
}

CudnnDescriptor activation_grad_operation(Activation activation, DType dtype, const CudnnDescriptor& dy,
                                          const CudnnDescriptor& saved, const CudnnDescriptor& dz) {
  return operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
                   {{CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, pointwise(modes_of(activation).backward, dtype)},
                    {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, saved},
                    {CUDNN_ATTR_OPERATION_POINTWISE_DYDESC, dy},
                    {CUDNN_ATTR_OPERATION_POINTWISE_DXDESC, dz}});
}

CudnnDescriptor operation_graph(const std::vector<CudnnDescriptor>& operations, const CudnnTarget& target) {
  CudnnDescriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, operations);
  if (target.handle) graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, target.handle);
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
