// SPDX-License-Identifier: MIT
#include "engine/kernels/optim.h"

#include "engine/backend/exec.h"

namespace ab {

void launch(Device device, std::int64_t n, const SgdUpdate& update) { for_each_index(device, n, update); }
void launch(Device device, std::int64_t n, const AdamWUpdate& update) { for_each_index(device, n, update); }

}  // namespace ab
