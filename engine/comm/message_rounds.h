#pragma once
// SPDX-License-Identifier: MIT
//
// The messages of a collective, as one of its ranks sends and receives them: in each round all sends and receives at
// once, and the next when they are done. What the rounds of all ranks send is what route.h counts.

#include <vector>

#include "engine/comm/route.h"

namespace ab {

/// Parts [first, last) of the buffer, in their places there, to or from a member of the group.
struct Transfer {
  int peer;
  int first, last;
};

struct Round {
  std::vector<Transfer> sends{}, receives{};
  /// Empty: what comes takes its place in the buffer. Else all that comes is of the same parts and is added up in this
  /// order of ranks, this one among them.
  std::vector<int> operands{};
  bool completes_sum = false;  ///< of all ranks: a mean is divided here
};

struct MessageRounds {
  int parts = 1;  ///< that the buffer is cut into, in order and of equal size (part_of_rank() in collective_call.h)
  std::vector<Round> rounds{};
};

/// `rank` and `root` are members of the group.
MessageRounds message_rounds(Collective what, const Route& route, const Layout& layout, int rank, int root = 0);

}  // namespace ab
