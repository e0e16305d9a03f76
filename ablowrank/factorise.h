#pragma once
// SPDX-License-Identifier: MIT
//
// From a weight to its factors and back. A weight is seen as a matrix W2, O × K, where O stands for its rows and K
// for its columns (layers/weight.h); the decomposition works on the tall orientation, and everything here is
// expressed in the stored form
//   W2 = outer · diag(sigma) · inner      outer: [O, r]   inner: [r, K]

#include <cstdint>
#include <span>

#include "engine/backend/backend.h"
#include "layers/weight.h"

namespace ab {

/// Every r is rounded up to a multiple of `multiple`, and is at least 1 and at most n.
struct RankRounding {
  std::int64_t multiple = 1;
  std::int64_t apply(std::int64_t r, std::int64_t n) const;
  /// The r that is nearest to `share` · n.
  std::int64_t of_share(double share, std::int64_t n) const;
  bool operator==(const RankRounding&) const = default;
};

/// How many singular directions of a weight are kept.
struct RankPolicy {
  double ratio = 0.5;         ///< in (0, 1]: ratio · n, rounded to the nearest; 0: the cutoff decides
  double cutoff = 0.15;       ///< in [0, 1): all sigma_i > cutoff · sigma_1 (the paper)
  std::int64_t multiple = 1;  ///< the result is rounded up to a multiple of this

  bool operator==(const RankPolicy&) const = default;
  /// r for a weight with singular values `sigma` (descending, n of them): at least 1, also for a dead layer
  /// whose sigma are all zero, and at most n.
  std::int64_t choose(std::span<const double> sigma) const;
};

/// Where the singular values of W = U Σ V go.
enum class Gauge {
  split_sigma,  ///< A = U Σ^½, B = Σ^½ V on every rank (the paper)
  orthonormal,  ///< the frozen factor is U or V itself and the trained one carries Σ: a step of the trained
                ///< factor then moves W by the projected gradient, at the learning rate of dense training
};

/// A truncated singular value decomposition of W2.
struct LowRank {
  Tensor outer;  ///< [O, r], orthonormal columns
  Tensor sigma;  ///< [r], descending
  Tensor inner;  ///< [r, K], orthonormal rows
  std::int64_t r() const { return sigma.numel(); }
};

/// The decomposition of W2 [O, K], cut to the rank that `policy` chooses (no cut: nullptr).
LowRank decompose(const Tensor& w2, const RankPolicy* policy);
/// The same, cut to a rank that is known.
LowRank decompose(const Tensor& w2, std::int64_t r);

/// The two tensors that a rank holds, of which it trains one.
struct FactorPair {
  Tensor outer;  ///< [O, r]
  Tensor inner;  ///< [r, K]
};
/// Distributes sigma over the factors, of which `trained_outer` says which is trained. Only a frozen factor may share
/// the storage of `low_rank`, so training does not touch it.
FactorPair apply_gauge(const LowRank& low_rank, Gauge gauge, bool trained_outer);

/// The rest that the cut left over: W2 − outer · diag(sigma) · inner   [O, K]
Tensor rest_of(const Tensor& w2, const LowRank& low_rank);

/// op(a) · op(b), row-major matrices; of the factors outer [O, r] and inner [r, K]: W2.
Tensor product(const Tensor& a, const Tensor& b, bool transpose_a = false, bool transpose_b = false);

/// On the host.
Tensor in_float64(const Tensor& t);

/// X V + U Y − ½ U (Uᵀ X + Y Vᵀ) V for orthonormal U [O, r] and V [r, K], X: [O, r], Y: [r, K]: the matrix whose
/// projections are X = W Vᵀ and Y = Uᵀ W, the part that both see taken as their mean. Exact when X and Y come
/// from one W in the tangent space of the rank-r matrices at U Σ V.
Tensor lift_from_tangent(const Tensor& u, const Tensor& v, const Tensor& x, const Tensor& y);

}  // namespace ab
