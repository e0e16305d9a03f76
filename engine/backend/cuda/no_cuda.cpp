// SPDX-License-Identifier: MIT
//
// Stands in for the rest of this folder in builds without CUDA.
#include "engine/backend/backend.h"
#include "engine/device/device.h"

namespace ab {

Backend& cuda_backend(int) { throw Error(ErrorKind::communication, cuda_unavailable_reason()); }

}  // namespace ab
