#pragma once
// SPDX-License-Identifier: MIT

#include "apps/settings/train_config.h"
#include "engine/core/dtype.h"
#include "layers/models/models.h"

namespace ab {

/// What forward and backward of the dense model hold at most for one image of a batch, in bytes, beside parameters and
/// their gradients: by a step with few images (1 of 224 × 224, 32 of 32 × 32, at most half of the run's batch but 2) and one with
/// twice as many, on `device`, where nothing else allocates meanwhile. On a CPU all memory of the process counts, scratch of
/// libraries too. Where not enough is left for so many images, fewer are measured; throws OutOfMemory where none can be.
std::int64_t activation_bytes(const ModelSpec& spec, const TrainConfig& config, Device device);

}  // namespace ab
