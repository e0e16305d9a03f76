#pragma once
// SPDX-License-Identifier: MIT
//
// Collectives over many small tensors at once: they travel in one flat buffer per element type, because a
// collective has a price of its own, whatever its size. The tensors lie on one device, and so does the buffer.

#include <map>
#include <vector>

#include "engine/comm/comm.h"

namespace ab {

/// The flat buffers that `tensors` travel in: the number of elements of each type.
std::map<DType, std::int64_t> elements_by_type(const std::vector<Tensor>& tensors);

/// Every tensor of every rank takes the values it has on `root`.
void broadcast_flat(Comm& comm, const std::vector<Tensor>& tensors, int root);

/// In place, over all ranks of `comm`.
void all_reduce_flat(Comm& comm, const std::vector<Tensor>& tensors, ReduceOp op);

}  // namespace ab
