#pragma once
// SPDX-License-Identifier: MIT
//
// The gradients that PowerSGD, ACP-SGD and Dion compress. A gradient of two or more dimensions is seen as a matrix G [n, m],
// n its first dimension, and approximated by Pᵀ·Q with P [r, n] and Q [r, m]: r·(n+m) numbers instead of n·m. Factors
// lie as rows here, the transposes of those in the papers. All P are parts of one tensor and all Q of another, so that
// each travels in one collective.

#include <functional>
#include <vector>

#include "engine/autograd/var.h"
#include "engine/backend/low_rank.h"
#include "engine/io/state_dict.h"
#include "engine/kernels/finite_check.h"
#include "engine/kernels/orthonormal_rows.h"

namespace ab {

struct LowRankSizes {
  std::int64_t n = 0, m = 0, r = 0;
  bool compressed() const { return r > 0; }
};

/// How gradients are approximated.
struct GradientRank {
  double rank = 4;      ///< r; below 1: the share of the smaller of n and m that r is
  double min_rate = 2;  ///< gradients that shrink by less are exchanged in full

  bool operator==(const GradientRank&) const = default;
};
/// The sizes for a gradient of that shape, r <= min(n, m); r = 0 where factors would not save: vectors, and matrices with
/// min_rate · r · (n+m) >= n·m.
LowRankSizes low_rank_sizes(const Shape& shape, const GradientRank& of);

struct LowRankMatrix {
  Param* param;
  LowRankSizes size;
  Tensor work{};      ///< [n, m] M = G + E, then Ĝ
  Tensor residual{};  ///< [n, m] E, this rank's own
  Tensor p{}, q{};    ///< [r, n], [r, m]: those that all ranks share, once they have been exchanged
  /// This rank's own factor, while that of all is on its way; either one, in the same memory.
  Tensor own_p{}, own_q{};

  const Tensor& gradient() const { return param->value.grad(); }
};

class LowRankGradients {
 public:
  /// Takes those of `params` for which sizes() gives an r. First factors are normal, drawn from Philox(seed, parameter) in the stream
  /// `name`, which begins names in a checkpoint too: equal on all ranks.
  LowRankGradients(const std::vector<Param*>& params, const std::function<LowRankSizes(const Shape&)>& sizes,
                   std::uint64_t seed, std::string name);

  const std::vector<LowRankMatrix>& matrices() const { return matrices_; }
  /// The others.
  const std::vector<Param*>& rest() const { return rest_; }

  const Tensor& all_p() const { return all_p_; }
  const Tensor& all_q() const { return all_q_; }
  /// Every matrix's own Q.
  Tensor all_own_q() const { return all_own_.slice(0, all_q_.numel()); }
  /// Every matrix's own Q becomes its Q.
  void note_own_q() const { all_own_q().copy_from(all_q_); }
  /// `step` chooses what rows that vanish are drawn from.
  void orthonormalise_p(std::int64_t step) const { p_rows_.make(seed_, step + 1); }
  void orthonormalise_q(std::int64_t step) const { q_rows_.make(seed_, step + 1); }
  /// Every parameter's gradient becomes its Ĝ.
  void hand_over() const;
  /// Notes all factors, and takes them back where `check` has found a result of the step that is not finite.
  void keep_factors() const;
  void restore_factors(const FiniteCheck& check) const;

  void save(StateDict& state) const;
  void load(const StateDict& saved);

 private:
  std::string name_;
  std::uint64_t seed_;
  std::vector<LowRankMatrix> matrices_;
  std::vector<Param*> rest_;
  Tensor all_p_, all_q_, all_own_;
  OrthonormalRows p_rows_, q_rows_;
  Tensor kept_p_, kept_q_;
};

}  // namespace ab
