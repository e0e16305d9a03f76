#pragma once
// SPDX-License-Identifier: MIT
//
// cuDNN's execution plans for a graph of operations.

#include <cstddef>
#include <functional>
#include <vector>

#include "engine/backend/cuda/cudnn_descriptor.h"
#include "engine/backend/plan_choice.h"

namespace ab::cuda {

using NumericalNotes = std::vector<cudnnBackendNumericalNote_t>;

/// What a plan is made for: the GPU behind a handle, on which it will run, or one that is described and need not be
/// there, for a plan that is only looked at. A graph and what is planned for it name the same one.
class CudnnTarget {
 public:
  CudnnTarget(cudnnHandle_t handle) : handle_(handle) { AB_ASSERT(handle); }
  CudnnTarget(const CudnnDescriptor& device_properties) : device_properties_(&device_properties) {}

  /// Each gives the descriptor the attribute that names the target, where it needs one.
  void name_in_graph(CudnnDescriptor& graph) const;
  void name_in_heuristics(CudnnDescriptor& heuristics) const;
  void name_in_plan(CudnnDescriptor& plan) const;

 private:
  cudnnHandle_t handle_ = nullptr;
  const CudnnDescriptor* device_properties_ = nullptr;  // null where there is a handle
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

}  // namespace ab::cuda
