// SPDX-License-Identifier: MIT
#include "engine/backend/cuda/cudnn_plan.h"

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
  target.name_in_heuristics(heuristics);
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
  target.name_in_plan(plan);
  if (plan.try_finalize() != CUDNN_STATUS_SUCCESS) return {};
  const std::int64_t workspace = plan.get_int64(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
  if (workspace > kMaxWorkspaceBytes) return {};
  return CudnnPlan{std::move(plan), static_cast<std::size_t>(workspace), is_deterministic};
}

}  // namespace

bool contains(const NumericalNotes& notes, cudnnBackendNumericalNote_t note) {
  return std::ranges::find(notes, note) != notes.end();
}

void CudnnTarget::name_in_graph(CudnnDescriptor& graph) const {
  if (handle_) graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, handle_);
}

/// These know a handle from their graph.
void CudnnTarget::name_in_heuristics(CudnnDescriptor& heuristics) const {
  if (!handle_) heuristics.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *device_properties_);
}

void CudnnTarget::name_in_plan(CudnnDescriptor& plan) const {
  if (handle_) plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, handle_);
  else plan.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, *device_properties_);
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

}  // namespace ab::cuda
