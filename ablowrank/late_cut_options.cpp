// SPDX-License-Identifier: MIT
#include "ablowrank/late_cut_options.h"

#include <algorithm>
#include <functional>

#include "engine/core/check.h"

namespace ab {

void LateCutOptions::validate() const {
  AB_CHECK(rank_multiple >= 1, "late cut: r is rounded up to a multiple of at least 1");
  AB_CHECK(std::is_sorted(at.begin(), at.end(), std::less_equal{}) || at.size() < 2,
           "--late-cut.at: cuts come one after the other, so each share is larger than the one before");
  AB_CHECK(keep.size() < 2 || keep.size() == at.size(),
           "--late-cut.keep has {} numbers for the {} cuts of --late-cut.at", keep.size(), at.size());
  for (const double share : keep)
    AB_CHECK(share > 0 && share <= 1, "--late-cut.keep {}: a cut keeps a share above 0, up to 1", share);
  AB_CHECK(std::is_sorted(keep.rbegin(), keep.rend()),
           "--late-cut.keep: a later cut cannot keep more than one before it");
}

double LateCutOptions::kept(std::size_t index) const {
  if (!keep.empty()) return keep.size() == 1 ? keep[0] : keep.at(index);
  switch (rank_policy) {
    case RanksBy::loss_share: return 0.995;
    case RanksBy::loss_budget: return 0.25;
    case RanksBy::ratio: return 0.5;
  }
  return 1;
}

}  // namespace ab
