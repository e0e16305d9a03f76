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

/// What ranks cost, of all weights together as a share of what they cost dense:
///   ½ Σ elements / Σ dense elements + ½ Σ operations / Σ dense operations,
///   elements: r(O + K) or O·K,   operations: those times positions
/// The ranks of least cost and least rise of the loss, Σ_l Σ_{i > r_l} increase_{l,i}, are for some μ those where a direction is
/// kept when it is worth at least μ times its cost, and a weight stays dense when that is worth its cost. μ by bisection.

/// Where the cost is least and the loss rises by no more than 1 - `share` of Σ_l Σ_i increase_{l,i}; no r is below
/// max(8, n/16).
std::vector<std::int64_t> ranks_by_share(std::span<const CutWeight> weights, double share,
                                         const RankRounding& rounding);

/// Where the loss rises least and the cost is `budget` at most. Where not even the smallest ranks fit, those.
std::vector<std::int64_t> ranks_by_budget(std::span<const CutWeight> weights, double budget,
                                          const RankRounding& rounding);

}  // namespace ab
