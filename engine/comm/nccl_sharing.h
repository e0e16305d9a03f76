#pragma once
// SPDX-License-Identifier: MIT
//
// Several processes on one GPU under NCCL, to check results where there are fewer GPUs than ranks. NCCL refuses two
// ranks on one GPU of one host; each process therefore claims to be a host of its own, and they talk through sockets.
// The GPU switches between the processes in slices of time, so speed means nothing.

#include <string>
#include <utility>
#include <vector>

namespace ab {

/// Names and values that the environment of this rank must have before the first call of NCCL.
std::vector<std::pair<std::string, std::string>> nccl_sharing_environment(int rank);

}  // namespace ab
