#pragma once
// SPDX-License-Identifier: MIT
//
// cuDNN's execution plans for a graph of operations.

#include <cstddef>
#include <functional>
#include <vector>

#include "engine/backend/cuda/cudnn_descriptor.h"
#include "engine/core/plan_choice.h"

namespace ab::cuda {

using NumericalNotes = std::vector<cudnnBackendNumericalNote_t>;

/// A graph made ready to run.
struct CudnnPlan {
  CudnnDescriptor descriptor;
  std::size_t workspace_bytes = 0;
  bool is_deterministic = true;
};

bool contains(const NumericalNotes& notes, cudnnBackendNumericalNote_t note);

/// The plans to choose from, in cuDNN's order of preference: several for PlanChoice::timed, otherwise one; none when
/// cuDNN has none whose `is_precise(notes)`.
std::vector<CudnnPlan> find_plans(const CudnnDescriptor& graph, const CudnnDescriptor& device_properties,
                                  PlanChoice choice, const std::function<bool(const NumericalNotes&)>& is_precise);

}  // namespace ab::cuda
