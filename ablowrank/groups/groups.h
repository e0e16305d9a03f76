#pragma once
// SPDX-License-Identifier: MIT
//
// Which ranks train A and which train B (arXiv 2405.01067): contiguous groups, the first half of them A.
// A world that is a single group trains A and B in turn, cycle by cycle.

#include <cstdint>
#include <vector>

namespace ab {

enum class Factor { a, b };

struct RankGroup {
  int first = 0;  ///< world rank of the first member; members are contiguous
  int size = 0;
  Factor trains = Factor::a;  ///< in even cycles; see `alternates`
  bool alternates = false;    ///< the only group: trains the other factor in odd cycles

  Factor trained_in_cycle(std::int64_t cycle) const {
    return alternates && cycle % 2 != 0 ? (trains == Factor::a ? Factor::b : Factor::a) : trains;
  }
};

/// group_size g = -1: two halves, A first (with only_b: one group). g > 0: world div g groups; left-over ranks
/// join the first groups, one each, round after round. An odd number of groups has one more for B.
/// only_b: all groups train B. Throws Error(config) when g is larger than the world.
std::vector<RankGroup> make_groups(int world_size, int group_size, bool only_b);

/// The index of the group that holds `rank`.
int group_of(const std::vector<RankGroup>& groups, int rank);

/// How many ranks train `factor` in a cycle.
int trainers_of(const std::vector<RankGroup>& groups, Factor factor, std::int64_t cycle);

}  // namespace ab
