#pragma once
// SPDX-License-Identifier: MIT
//
// An all-reduce between ranks that see each other's memory. No messages: each rank takes care of one part and adds it up in
// the order, and with the roundings, of the algorithm that is asked for, so that bits equal those of ranks that
// exchange messages.

#include "engine/comm/collective_call.h"

namespace ab {

/// Writes the result of part `rank`, of each segment, into the tensors of all ranks. `tensors`: of every member, alike, on
/// one device; nobody else touches that part meanwhile.
void reduce_shared_part(const Route& route, const Layout& layout, const CollectiveCall& call, int rank,
                        const std::vector<Tensor>& tensors);

}  // namespace ab
