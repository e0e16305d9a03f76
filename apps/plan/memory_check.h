#pragma once
// SPDX-License-Identifier: MIT
//
// Whether a run fits in memory, before it starts: what its plan counts, and the activations of a batch, which are measured.

#include "apps/settings/train_config.h"
#include "data/dataset.h"
#include "engine/core/dtype.h"

namespace ab {

/// Throws Error(config), with the largest batch that would fit, when ranks need more memory than is left on `device` (that of
/// the machine, for a CPU), unless config.ignore_memory. `sharing`: ranks that share it. Where only training tells the ranks r of
/// factors, half of all are counted.
void check_memory(const TrainConfig& config, const Dataset& images, int world_size, int sharing, Device device);

}  // namespace ab
