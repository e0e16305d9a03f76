#pragma once
// SPDX-License-Identifier: MIT
//
// The synchronisation of AB-training: from factors that groups trained on their own to one W on all ranks.
// What each SyncMode computes stands in options.h; all of them cost one all-reduce, of r(O + K) floats per
// weight, less a factor that nobody trained (`full`: O·K); first moments that are joined cost the same again.

#include <vector>

#include "ablowrank/factorise.h"
#include "ablowrank/groups/groups.h"
#include "ablowrank/groups/options.h"
#include "ablowrank/groups/weighted_sum.h"

namespace ab {

/// A weight while it is split.
struct SplitWeight {
  Weight* weight = nullptr;
  LowRank origin;  ///< the decomposition it was split by; kept for SyncMode::tangent only
};

/// How many ranks train each factor in the present cycle, and how many there are.
struct Trainers {
  int a = 0, b = 0, world = 1;
  int of(Factor factor) const { return factor == Factor::a ? a : b; }
};

/// Which matrices of a weight travel in its join.
struct JoinTerms {
  bool dense = false, outer = false, inner = false;
  std::int64_t elements(const Weight& weight, std::int64_t r) const {
    return (dense ? weight.rows() * weight.columns() : 0) + (outer ? weight.rows() * r : 0) +
           (inner ? r * weight.columns() : 0);
  }
};
JoinTerms join_terms(SyncMode mode, const Trainers& trainers, bool transposed);

/// One rejoined quantity: what a rank contributes to `sum`, and the dense matrix afterwards. It serves the
/// weights themselves and, for SyncMode::tangent, their first moments, which transform alike.
class Join {
 public:
  /// `outer`, `inner`: this rank's copies; the one it does not train may be undefined for moments.
  Join(const SplitWeight& split, const Tensor& outer, const Tensor& inner, SyncMode mode, const Trainers& trainers,
       WeightedSum& sum);
  /// After sum.run(): the dense matrix [O, K], bitwise equal on all ranks.
  Tensor dense(const WeightedSum& sum) const;

 private:
  static constexpr std::size_t kLocal = ~std::size_t{0};

  Tensor outer_, inner_;
  LowRank origin_;
  SyncMode mode_;
  std::size_t outer_term_ = kLocal, inner_term_ = kLocal, dense_term_ = kLocal;
};

}  // namespace ab
