// SPDX-License-Identifier: MIT
#include "ablowrank/rank_policy.h"

#include <algorithm>
#include <cmath>

namespace ab {
std::int64_t RankPolicy::choose(std::span<const double> sigma) const {
  const auto n = static_cast<std::int64_t>(sigma.size());
  std::int64_t r = n;
  switch (kind) {
    case Kind::sigma_cutoff:
      r = std::count_if(sigma.begin(), sigma.end(), [&](double s) { return s > cutoff * sigma[0]; });
      break;
    case Kind::ratio: r = std::llround(ratio * static_cast<double>(n)); break;
  }
  r = std::max<std::int64_t>(r, 1);
  r = (r + multiple - 1) / multiple * multiple;
  return std::min(r, n);
}

}  // namespace ab
