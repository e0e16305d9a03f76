// SPDX-License-Identifier: MIT
//
// Stands in for engine/device/cuda and this folder in builds without CUDA: no devices, and one clear error.
#include "engine/backend/backend.h"
#include "engine/core/memory.h"
#include "engine/device/device.h"
#include "engine/device/graph.h"
#include "engine/device/upload.h"

namespace ab {

int cuda_device_count() { return 0; }

std::string cuda_device_name(int) { return ""; }
std::string cuda_bus_address(int) { return ""; }

std::string cuda_unavailable_reason() {
  return "this build has no CUDA support; configure with the cuda preset to use a GPU";
}

Memory& cuda_memory(int) { throw Error(ErrorKind::communication, cuda_unavailable_reason()); }
void cuda_synchronize(int) { throw Error(ErrorKind::communication, cuda_unavailable_reason()); }
std::unique_ptr<UploadSlot> cuda_upload_slot(int, std::size_t) {
  throw Error(ErrorKind::communication, cuda_unavailable_reason());
}
std::unique_ptr<Graph> cuda_capture_graph(GraphPool&, const std::function<void()>&) {
  throw Error(ErrorKind::communication, cuda_unavailable_reason());
}

Backend& cuda_backend(int) { throw Error(ErrorKind::communication, cuda_unavailable_reason()); }

}  // namespace ab
