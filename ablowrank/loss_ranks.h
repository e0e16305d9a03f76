#pragma once
// SPDX-License-Identifier: MIT
//
// The choice of all ranks r together, by the sensitivity of the loss to each direction (loss_metric.h). A weight
// whose factors would not be smaller, r(O + K) >= O·K, stays dense: its r is n. One that is factors already keeps its
// r at most.

#include <cstdint>
#include <span>
#include <vector>

#include "ablowrank/factorise.h"

namespace ab {

/// The facts at a cut of a weight W2, O × K (layers/weight.h).
struct CutWeight {
  std::int64_t rows = 0, columns = 0;
  double positions = 1;                 ///< how often it is applied to each sample; of spatial factors the inner one
  std::span<const double> increases{};  ///< of the loss, without direction i, descending; [rows]
  std::int64_t rank = 0;  ///< of the factors that it is the product of, after an earlier cut; 0: it is dense

  std::int64_t n() const { return rows < columns ? rows : columns; }
  /// The r with which nothing is lost.
  std::int64_t whole() const { return rank > 0 ? rank : n(); }
};

/// The cost of ranks, of all weights together as a share of their cost when dense:
///   ½ Σ elements / Σ dense elements + ½ Σ operations / Σ dense operations,
///   elements: r(O + K) or O·K,   operations: those times positions
/// Against it stands what they lose, Σ_l Σ_{i > r_l} increase_{l,i} / Σ_i increase_{l,i}: every weight counts as one,
/// because the loss really rises by more than expected, by a factor that differs more between weights than within one
/// (bench/cut_loss_bench.cpp). For a price μ of the cost, the least of loss + μ cost is where a direction is kept
/// when it is worth at least μ times its cost, and a weight stays as it is when that is worth its cost. Such ranks,
/// for all μ, are the lower convex hull of what can be had (Shoham and Gersho 1988): but for rounding and the least
/// r, with what they lose nothing is cheaper, at their cost nothing loses less. μ by bisection, so what is chosen is
/// the last corner of the hull within the limit.

/// They lose no more than 1 - `share` in the mean over weights. No r of factors falls below max(8, n/16), even where
/// less would do.
std::vector<std::int64_t> ranks_by_share(std::span<const CutWeight> weights, double share,
                                         const RankRounding& rounding);

/// The cost is `budget` at most. Where not even the smallest ranks fit, those.
std::vector<std::int64_t> ranks_by_budget(std::span<const CutWeight> weights, double budget,
                                          const RankRounding& rounding);

}  // namespace ab
