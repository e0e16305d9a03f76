#pragma once
// SPDX-License-Identifier: MIT
//
// Whether a run fits in memory, before it starts: what its rehearsal (rehearsal.h) takes, and batches that are prepared ahead.
// The data set is there already. What libraries keep is not counted, nor the gradients that a CUDA graph keeps beside the sum
// of several micro-batches.

#include "apps/settings/train_config.h"
#include "data/dataset.h"
#include "engine/comm/comm.h"

namespace ab {

/// Memory for some ranks together.
struct SharedMemory {
  int ranks = 1;
  std::int64_t available = 0;  ///< bytes
};

/// Of the ranks that compute on `device` of this machine. Collective: all have loaded their images when it is asked how much
/// is left. Not counted in the ledger.
SharedMemory shared_memory(Device device, Comm& world);

/// Throws Error(config), with the largest batch that would fit, when ranks need more than is left for them, unless
/// config.ignore_memory. Ranks r of factors are counted as half of all. An error of the estimate is a warning.
void check_memory(const TrainConfig& config, const Dataset& images, int world_size, const SharedMemory& share,
                  Device device);

}  // namespace ab
