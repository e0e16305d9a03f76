#pragma once
// SPDX-License-Identifier: MIT
//
// A call of a collective, as a rank asks its group for it. All ranks must ask for the same; transports compare these descriptions
// and errors print them.

#include <cstdint>
#include <string>
#include <vector>

#include "engine/comm/comm.h"

namespace ab {

struct CollectiveCall {
  Collective what = Collective::barrier;
  DType dtype = DType::uint8;
  std::int64_t elements = 0;  ///< of the full buffer: all parts of a gather
  ReduceOp op = ReduceOp::sum;
  int root = 0;

  bool operator==(const CollectiveCall&) const = default;
  std::string str() const;  ///< "all_reduce(mean) of 100 float32"
  std::int64_t bytes() const { return elements * static_cast<std::int64_t>(size_of(dtype)); }

  /// Collective, type and operation in one number below kKinds, for transports that tell calls apart by a number.
  static constexpr int kKinds = 6 * kDTypeCount * 3;
  int kind() const {
    return (static_cast<int>(what) * kDTypeCount + static_cast<int>(dtype)) * 3 + static_cast<int>(op);
  }
  static CollectiveCall of_kind(int kind);
};

/// Elements [begin, end) of a buffer.
struct ElementRange {
  std::int64_t begin, end;
  std::int64_t size() const { return end - begin; }
};
/// The segments of a collective (route.h), in order; one at least.
std::vector<ElementRange> segment_ranges(const Route& route, const CollectiveCall& call);
/// The part of a buffer of `elements` that rank `rank` of `ranks` takes care of; sizes differ by at most one.
ElementRange part_of_rank(std::int64_t elements, int rank, int ranks);

/// "rank 2", "ranks 2, 3".
std::string list_ranks(const std::vector<int>& ranks);

/// An all-reduce between ranks that see each other's memory (thread_comm.cpp). No messages: each rank takes care of one part
/// and adds it up in the order, and with the roundings, of the algorithm that is asked for, so that bits equal those of ranks
/// that exchange messages. Writes the result of part `rank`, of each segment, into the tensors of all ranks. `tensors`: of every member, alike, on
/// one device; nobody else touches that part meanwhile.
void reduce_shared_part(const Route& route, const Layout& layout, const CollectiveCall& call, int rank,
                        const std::vector<Tensor>& tensors);

}  // namespace ab
