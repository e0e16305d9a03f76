// SPDX-License-Identifier: MIT
#include "ablowrank/groups/groups.h"

#include "engine/core/check.h"

namespace ab {

std::vector<RankGroup> make_groups(int world_size, int group_size, bool only_b) {
  AB_CHECK(group_size == -1 || group_size >= 1, "AB-training: group_size is a number of ranks or -1, got {}",
           group_size);
  AB_CHECK(group_size <= world_size, "AB-training: groups of {} ranks do not fit a world of {}; lower --ab.group-size",
           group_size, world_size);
  int count = group_size > 0 ? world_size / group_size : (only_b ? 1 : 2);
  if (count > world_size) count = world_size;

  std::vector<RankGroup> groups(static_cast<std::size_t>(count));
  const int base = group_size > 0 ? group_size : world_size / count;
  const int left_over = world_size - base * count;
  int first = 0;
  for (int i = 0; i < count; ++i) {
    RankGroup& group = groups[static_cast<std::size_t>(i)];
    // The halves of an odd world: the larger one trains B, as an odd number of groups would have it.
    const int extra = group_size > 0 ? left_over / count + (i < left_over % count) : (i == count - 1 ? left_over : 0);
    group = {first, base + extra, only_b || i >= count / 2 ? Factor::b : Factor::a, false};
    first += group.size;
  }
  if (count == 1 && !only_b) groups[0] = {0, world_size, Factor::a, true};
  return groups;
}

int group_of(const std::vector<RankGroup>& groups, int rank) {
  for (std::size_t i = 0; i < groups.size(); ++i)
    if (rank < groups[i].first + groups[i].size) return static_cast<int>(i);
  throw Bug("bug in abtrain: a rank outside all groups");
}

int trainers_of(const std::vector<RankGroup>& groups, Factor factor, std::int64_t cycle) {
  int ranks = 0;
  for (const RankGroup& group : groups)
    if (group.trained_in_cycle(cycle) == factor) ranks += group.size;
  return ranks;
}

}  // namespace ab
