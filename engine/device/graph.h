#pragma once
// SPDX-License-Identifier: MIT
//
// Work of a device that is recorded once and then launched as a whole, as often as wanted: a CUDA graph. A step of
// training is hundreds of kernels, and to launch them one by one can take a CPU longer than a GPU needs to run them.
// The graph holds kernels, vendor calls and copies within the device, with their arguments as they are: numbers
// that change from step to step must lie in device memory. Before a capture the same work has run once with tensors of
// the same pool in scope, so that plans are made, workspaces are large enough and the pool has all the memory it needs.

#include <functional>
#include <memory>

#include "engine/core/graph_pool.h"

namespace ab {

class Graph {
 public:
  virtual ~Graph() = default;
  /// Issues the work to the calling thread's stream, which must be the thread that captured it.
  virtual void launch() = 0;
};

/// The work that `issue_work` issues on the calling thread's stream of the pool's device; none of it runs. All
/// that it makes on that device lies in `pool`, which the graph keeps. Throws Bug when it copies from or to the host or waits
/// for the device, and Error(config) for the CPU.
std::unique_ptr<Graph> capture_graph(GraphPool& pool, const std::function<void()>& issue_work);

/// Implemented by engine/device/cuda, or by its stub in builds without CUDA: with `pool` in scope.
std::unique_ptr<Graph> cuda_capture_graph(GraphPool& pool, const std::function<void()>& issue_work);

}  // namespace ab
