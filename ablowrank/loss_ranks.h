#pragma once
// SPDX-License-Identifier: MIT
//
// How the ranks of all weights are chosen together, from what each direction is worth to the loss (loss_metric.h). A weight
// whose factors would not be smaller, r(O + K) >= O·K, stays dense: its r is n.

#include <cstdint>
#include <span>
#include <vector>

namespace ab {

/// What is known of a weight O × K at a cut.
struct CutWeight {
  std::int64_t out = 0, in = 0;
  double positions = 1;                 ///< how often it is applied to each sample
  std::span<const double> increases{};  ///< of the loss, without direction i, descending; [out]

  std::int64_t n() const { return out < in ? out : in; }
};

/// Every r is rounded up to a multiple of `multiple`, and is at least 1.
struct RankRounding {
  std::int64_t multiple = 1;
  std::int64_t apply(std::int64_t r, std::int64_t n) const;
  bool operator==(const RankRounding&) const = default;
};

/// For every weight by itself, the fewest directions that hold `share` of the sum of its increases, no fewer than max(8, n/16).
std::vector<std::int64_t> ranks_by_share(std::span<const CutWeight> weights, double share,
                                         const RankRounding& rounding);

/// The ranks that raise the loss least where all weights together cost `budget` of what they cost dense:
///   minimise Σ_l Σ_{i > r_l} increase_{l,i}   with   ½ Σ weights / Σ dense weights + ½ Σ operations / Σ dense operations
///   <= budget,   weights: r(O + K) or O·K,   operations: those times positions
/// so a direction is kept when it is worth at least μ (O + K)(½ / Σ weights + ½ positions / Σ operations) for one μ, and a
/// weight stays dense when that is worth its price. μ by bisection. Where not even the smallest ranks fit, those.
std::vector<std::int64_t> ranks_by_budget(std::span<const CutWeight> weights, double budget,
                                          const RankRounding& rounding);

}  // namespace ab
