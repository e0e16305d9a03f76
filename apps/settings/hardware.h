#pragma once
// SPDX-License-Identifier: MIT
//
// From the words of --device, --allreduce and --network to the device that computes and the links that ranks talk over.

#include <string>

#include "apps/settings/train_config.h"
#include "engine/comm/ledger.h"
#include "engine/core/dtype.h"

namespace ab {

/// Throws Error(config) unless `word` is cpu, cuda or cuda:N.
void check_device_word(const std::string& word);

/// cpu; GPU N; or for cuda GPU 0, and for the processes that mpirun, srun or torchrun started one GPU each in turn.
/// Throws Error(config) for any other word, and Error(communication) that says why when there is no such GPU.
Device choose_device(const std::string& word);

/// Of ranks on CPUs. Throws Error(config) for a network in words that are not known.
Wiring run_wiring(const TrainConfig& config);

/// As a plan of the run takes it: --network's gaps are as in LinkModel, and on GPUs NCCL chooses the algorithm.
/// Throws Error(config) for a network that changes on the way.
Wiring planned_wiring(const TrainConfig& config);

}  // namespace ab
