// SPDX-License-Identifier: MIT
#include "engine/device/emulated_gpu/capture.h"

#include <utility>
#include <vector>

#include "engine/core/check.h"
#include "engine/device/device.h"
#include "engine/device/emulated_gpu/arena.h"
#include "engine/device/graph.h"

namespace ab {
namespace emulated_gpu {
namespace {

class EmulatedGraph final : public Graph {
 public:
  explicit EmulatedGraph(std::shared_ptr<GraphPool> pool) : pool_(std::move(pool)) {}

  Device device() const { return pool_->device(); }
  void add(std::function<void()> work) { work_.push_back(std::move(work)); }
  void launch() override {
    refuse_in_capture("the launch of a graph");
    arena(device().index).count_graph_launch();
    for (const auto& work : work_) work();
  }

 private:
  std::shared_ptr<GraphPool> pool_;  // of the addresses in the work
  std::vector<std::function<void()>> work_;
};

thread_local EmulatedGraph* graph_in_capture = nullptr;

struct CaptureScope {
  explicit CaptureScope(EmulatedGraph& graph) { graph_in_capture = &graph; }
  ~CaptureScope() { graph_in_capture = nullptr; }
  CaptureScope(const CaptureScope&) = delete;
  CaptureScope& operator=(const CaptureScope&) = delete;
};

}  // namespace

bool capturing(Device device) { return graph_in_capture && graph_in_capture->device() == device; }

void capture(std::function<void()> work) { graph_in_capture->add(std::move(work)); }

void refuse_in_capture(const char* what) {
  if (graph_in_capture) throw Bug(fmt::format("{} inside a captured step: a CUDA graph cannot repeat it", what));
}

}  // namespace emulated_gpu

std::unique_ptr<Graph> cuda_capture_graph(GraphPool& pool, const std::function<void()>& issue_work) {
  check_cuda_device(pool.device().index);
  emulated_gpu::refuse_in_capture("a second capture");
  auto graph = std::make_unique<emulated_gpu::EmulatedGraph>(pool.shared_from_this());
  const emulated_gpu::CaptureScope scope(*graph);
  issue_work();
  return graph;
}

}  // namespace ab
