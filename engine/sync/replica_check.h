#pragma once
// SPDX-License-Identifier: MIT
//
// Replicas of data-parallel training drift apart unnoticed when a rank computes other bits than its peers
// (another processor, a flipped bit, a bug). A hash of every rank's values shows it for 8 bytes a rank.

#include <string>
#include <vector>

#include "engine/comm/comm.h"

namespace ab {

/// What each rank contributes to a check.
inline constexpr std::int64_t kReplicaHashBytes = 8;

/// Throws Error(numerics) naming the ranks whose `tensors` differ from those of rank 0 in any bit, and the first tensor that
/// does, by `names` (of the first tensors; the others have none). Collective.
void check_replicas(Comm& comm, const std::vector<Tensor>& tensors, const std::string& when,
                    const std::vector<std::string>& names = {});

}  // namespace ab
