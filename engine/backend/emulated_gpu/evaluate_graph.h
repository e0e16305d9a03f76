#pragma once
// SPDX-License-Identifier: MIT
//
// Computes a graph of attention (engine/backend/attention_graph.h) node by node, through the strides of its tensors, in
// float64: what stands in for cuDNN where there is no GPU, and how tests know what a graph means.

#include <map>

#include "engine/backend/attention_graph.h"

namespace ab::emulated_gpu {

/// `addresses`: of every tensor in memory and of every number.
void evaluate_graph(const AttentionGraph& graph, const std::map<AttentionTensor, double*>& addresses);

}  // namespace ab::emulated_gpu
