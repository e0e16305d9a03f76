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
#include "engine/comm/comm.h"
#include "engine/optim/optimizer.h"

namespace ab {

/// Many tensors summed over ranks in one collective, each with a weight of the rank's own: a mean over all ranks
/// (weight 1/p) or over some of them (1/k on those, 0 on the others) are the uses.
class WeightedSum {
 public:
  /// Adds weight · tensor to the sum; returns the index of its result. All ranks add equal shapes in the same
  /// order, all on one device. With weight 0 only the shape matters.
  std::size_t add(const Tensor& tensor, double weight);
  /// One all-reduce over `comm` of everything added.
  void run(Comm& comm);
  /// The sum over ranks, in the shape and on the device of what was added.
  Tensor result(std::size_t index) const { return results_.at(index); }

 private:
  struct Term {
    Tensor tensor;
    double weight;
  };
  std::vector<Term> terms_;
  std::vector<Tensor> results_;
};

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

// Optimizer state of a weight across splits and synchronisations (MomentCarry).

/// After a split: gives the trained factor its state and drops that of the frozen one.
void carry_moments_to_factors(Weight& weight, MomentCarry carry, Optimizer& optimizer);

/// The join of the first moments, for MomentCarry::project with SyncMode::tangent and an optimizer whose
/// only state is a first moment; the dense moment is join.dense(sum) once the sum has run.
bool moments_can_join(const AbOptions& options, const SplitWeight& split, Optimizer& optimizer);
Join join_moments(const SplitWeight& split, const AbOptions& options, const Trainers& trainers, Optimizer& optimizer,
                  WeightedSum& sum);

/// After a sync: gives W its state (`dense_moment` may be undefined) and drops that of the factors.
void carry_moments_to_dense(Weight& weight, MomentCarry carry, const Tensor& dense_moment, Optimizer& optimizer);

}  // namespace ab
