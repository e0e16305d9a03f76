// SPDX-License-Identifier: MIT
#include "engine/device/device.h"

#include "engine/core/check.h"
#include "engine/core/memory.h"
#include "engine/device/graph.h"

namespace ab {

void check_cuda_device(int device_index) {
  static const int count = cuda_device_count();
  if (0 <= device_index && device_index < count) return;
  const std::string reason = cuda_unavailable_reason();
  AB_CHECK_KIND(communication, reason.empty(), "{}", reason);
  AB_CHECK_KIND(communication, false, "there is no GPU {}: this process sees {}, numbered from 0", device_index, count);
}

void throw_out_of_memory(int device_index, std::int64_t in_use, std::size_t wanted) {
  throw OutOfMemory(
      fmt::format("GPU {} is out of memory: {} bytes are in use and {} more were asked for; lower the batch size or "
                  "the number of ranks on this GPU",
                  device_index, in_use, wanted));
}

void synchronize(Device device) {
  if (device.kind == DeviceKind::cuda) cuda_synchronize(device.index);
}

std::unique_ptr<Graph> capture_graph(GraphPool& pool, const std::function<void()>& issue_work) {
  AB_CHECK(pool.device().kind == DeviceKind::cuda, "only work of a GPU can be captured in a graph");
  const GraphPool::Scope scope(pool);
  return cuda_capture_graph(pool, issue_work);
}

}  // namespace ab
