#pragma once
// SPDX-License-Identifier: MIT
//
// The arithmetic of reductions, shared by all transports: result[i] = ((x0[i] + x1[i]) + x2[i]) + …, always
// in rank order, so that bits depend neither on timing nor on the transport.

#include <cstdint>
#include <span>

#include "engine/comm/comm.h"

namespace ab {

/// Elements [begin, end) of a buffer.
struct ElementRange {
  std::int64_t begin, end;
  std::int64_t size() const { return end - begin; }
};

/// The part of a buffer of `elements` that rank `rank` of `ranks` takes care of; sizes differ by at most one.
ElementRange part_of_rank(std::int64_t elements, int rank, int ranks);

/// Reduces `count` elements of type `dtype` over sources[0], sources[1], … and writes the result to every
/// destination. A destination may be one of the sources. `mean` divides by the number of sources.
void reduce_in_rank_order(DType dtype, ReduceOp op, std::span<const void* const> sources,
                          std::span<void* const> destinations, std::int64_t count);

}  // namespace ab
