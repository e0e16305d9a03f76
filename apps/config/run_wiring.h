#pragma once
// SPDX-License-Identifier: MIT
//
// From --allreduce and --network to what collectives travel by and over.

#include "apps/settings/train_config.h"
#include "engine/comm/ledger.h"

namespace ab {

/// Of ranks on CPUs. Throws Error(config) for a network in words that are not known.
Wiring run_wiring(const TrainConfig& config);

/// As a plan of the run takes it: what --network leaves open is as in LinkModel, and on GPUs NCCL chooses the algorithm.
/// Throws Error(config) for a network that changes on the way.
Wiring planned_wiring(const TrainConfig& config);

}  // namespace ab
