#pragma once
// SPDX-License-Identifier: MIT
//
// From the words of --device, --allreduce and --network to the device that computes and the links that ranks talk over.

#include <string>

#include "apps/settings/train_config.h"
#include "engine/comm/ledger.h"
#include "engine/core/dtype.h"
#include "engine/core/precision.h"

namespace ab {

/// Throws Error(config) unless `word` is cpu, cuda or cuda:N.
void check_device_word(const std::string& word);

/// cpu; GPU N; or for cuda GPU 0, and for the processes that mpirun, srun or torchrun started one GPU each in turn.
/// Throws Error(config) for any other word, and Error(communication) that says why when there is no such GPU.
Device choose_device(const std::string& word);

/// Operations a second that products of matrices reach at most in `precision`.
struct Peak {
  double flops_per_second = 0;  ///< 0: not known
  std::string source;           ///< "measured", or the GPU by whose data sheet
};
/// By the data sheet of an A100, H100 or H200, without sparsity.
Peak peak_of_gpu(const std::string& name, Precision precision);
/// Of a rank: on a CPU what its threads reach in products for 0.03 s, beside all else that runs here; of GPUs those that are known.
Peak peak_of(Device device, Precision precision);

/// Of ranks on CPUs. Throws Error(config) for a network in words that are not known.
Wiring run_wiring(const TrainConfig& config);

/// As a plan of the run takes it: --network's gaps are as in LinkModel, and on GPUs NCCL chooses the algorithm.
/// Throws Error(config) for a network that changes on the way.
Wiring planned_wiring(const TrainConfig& config);

}  // namespace ab
