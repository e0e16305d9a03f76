// SPDX-License-Identifier: MIT
#include "engine/backend/backend.h"

namespace ab {

Backend& backend(Device device) {
  switch (device.kind) {
    case DeviceKind::cpu: return cpu_backend();
    case DeviceKind::cuda: return cuda_backend(device.index);
    case DeviceKind::shapes: return shapes_backend();
  }
  throw Bug("bug in abtrain: a device of no kind");
}

}  // namespace ab
