// SPDX-License-Identifier: MIT
#include "engine/device/graph.h"

#include "engine/core/check.h"

namespace ab {

std::unique_ptr<Graph> capture_graph(GraphPool& pool, const std::function<void()>& issue_work) {
  AB_CHECK(pool.device().kind == DeviceKind::cuda, "only work of a GPU can be captured in a graph");
  const GraphPool::Scope scope(pool);
  return cuda_capture_graph(pool, issue_work);
}

}  // namespace ab
