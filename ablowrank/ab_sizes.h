#pragma once
// SPDX-License-Identifier: MIT
//
// How large the parts of a model are, dense or split: what the plan of AB-training adds to engine/plan/model_sizes.h.

#include <optional>
#include <vector>

#include "ablowrank/groups/groups.h"
#include "engine/plan/model_sizes.h"
#include "layers/layer.h"
#include "layers/weight.h"

namespace ab {

/// The rank r of every eligible weight after a cut.
struct CutRanks {
  std::vector<std::vector<std::int64_t>> splits{};  ///< one after the other, at least one; later ones are as the last
  std::vector<std::int64_t> at_the_end{};           ///< of a run that leaves factors; empty: as the last
};

/// Sizes are numbers of elements. Refers to the weights of the model, which must stay.
struct AbSizes {
  /// `cut`: the ranks r of every eligible weight (split.h). Throws Error(config) when their number or their size does not fit
  /// the model, which is dense and has its parameters' final roles.
  AbSizes(Layer& model, CutRanks cut);

  static constexpr int kUncut = -1, kAtTheEnd = -2;
  /// The rank of an eligible weight after the split of that number, after one at full rank, or after that which ends the run.
  std::int64_t r(std::size_t weight, int split) const {
    if (split == kUncut) return eligible[weight]->n();
    return split == kAtTheEnd ? cut.at_the_end[weight] : cut.splits[static_cast<std::size_t>(split)][weight];
  }
  int last_split() const { return static_cast<int>(cut.splits.size()) - 1; }
  std::int64_t factor_elements(std::size_t weight, Factor factor, std::int64_t r) const {
    return r * (factor == Factor::a ? eligible[weight]->m() : eligible[weight]->n());
  }

  ModelSizes dense;
  std::vector<Weight*> eligible;                  ///< eligible_weights()
  std::vector<std::optional<std::size_t>> owner;  ///< of each of dense.params: its index in `eligible`, if it has one
  CutRanks cut;
  std::int64_t shared = 0;          ///< what no split touches: other parameters, and buffers
  std::int64_t shared_trained = 0;  ///< of those, what the optimizer keeps state for
};

}  // namespace ab
