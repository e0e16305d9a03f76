// SPDX-License-Identifier: MIT
#include "engine/backend/cuda/cuda_backend.h"

#include <memory>
#include <vector>

#include "engine/device/device.h"

namespace ab {

Backend& cuda_backend(int device_index) {
  check_cuda_device(device_index);
  static const auto backends = [] {
    std::vector<std::unique_ptr<cuda::CudaBackend>> list;
    for (int i = 0; i < cuda_device_count(); ++i) list.push_back(std::make_unique<cuda::CudaBackend>(i));
    return list;
  }();
  return *backends[static_cast<std::size_t>(device_index)];
}

}  // namespace ab
