// SPDX-License-Identifier: MIT
#include "engine/backend/backend.h"

namespace ab {

Backend& backend(Device device) { return device.kind == DeviceKind::cpu ? cpu_backend() : cuda_backend(device.index); }

}  // namespace ab
