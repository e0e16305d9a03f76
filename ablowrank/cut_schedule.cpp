// SPDX-License-Identifier: MIT
#include "ablowrank/cut_schedule.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "engine/core/check.h"

namespace ab {

void LateCutOptions::validate() const {
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

CutSchedule::CutSchedule(const LateCutOptions& options, std::int64_t total_steps, std::int64_t evaluation_period)
    : gather_steps_(options.gather_steps) {
  std::int64_t before = 0;
  for (const double share : options.at) {
    const std::int64_t asked = std::llround(share * static_cast<double>(total_steps));
    std::int64_t cut = std::min(std::max<std::int64_t>(asked, 1), total_steps - 1);
    if (evaluation_period > 1 && cut % evaluation_period == 0) cut += cut + 1 < total_steps ? 1 : -1;
    AB_CHECK(
        cut > before,
        "--late-cut.at {}: there has to be a step before the first cut, between two, and after the last, and a run of {} "
        "steps has none",
        share, total_steps);
    cuts_.push_back(cut);
    before = cut;
  }
}

std::size_t CutSchedule::cuts_until(std::int64_t step) const {
  return static_cast<std::size_t>(std::upper_bound(cuts_.begin(), cuts_.end(), step) - cuts_.begin());
}

bool CutSchedule::cuts_at(std::int64_t step) const { return std::binary_search(cuts_.begin(), cuts_.end(), step); }

bool CutSchedule::observes_at(std::int64_t step) const {
  const auto next = std::upper_bound(cuts_.begin(), cuts_.end(), step);
  return next != cuts_.end() && step >= *next - gather_steps_;
}

}  // namespace ab
