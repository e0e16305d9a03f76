#pragma once
// SPDX-License-Identifier: MIT
//
// From the word of --device to the device that this process computes on.

#include <string>

#include "engine/core/dtype.h"

namespace ab {

/// Throws Error(config) unless `word` is cpu, cuda or cuda:N.
void check_device_word(const std::string& word);

/// cpu; GPU N; or for cuda GPU 0, and for the processes that mpirun, srun or torchrun started one GPU each in turn.
/// Throws Error(config) for any other word, and Error(communication) that says why when there is no such GPU.
Device choose_device(const std::string& word);

}  // namespace ab
