#pragma once
// SPDX-License-Identifier: MIT
//
// How large the parts of a model are, dense or split: what the plan of AB-training adds to engine/plan/model_sizes.h.

#include <optional>
#include <vector>

#include "ablowrank/groups.h"
#include "engine/plan/model_sizes.h"
#include "layers/layer.h"
#include "layers/weight.h"

namespace ab {

/// Sizes are numbers of elements. Refers to the weights of the model, which must stay.
struct AbSizes {
  /// `cut_r`: r of every eligible weight (split.h) after a cut. Throws Error(config) when the number or the size of
  /// the ranks does not fit the model, which is dense and has its parameters' final roles.
  AbSizes(Layer& model, std::vector<std::int64_t> cut_r);

  /// The rank of an eligible weight after a split.
  std::int64_t r(std::size_t weight, bool cut) const { return cut ? cut_r[weight] : eligible[weight]->n(); }
  std::int64_t factor_elements(std::size_t weight, Factor factor, std::int64_t r) const {
    return r * (factor == Factor::a ? eligible[weight]->m() : eligible[weight]->n());
  }

  ModelSizes dense;
  std::vector<Weight*> eligible;                  ///< eligible_weights()
  std::vector<std::optional<std::size_t>> owner;  ///< of each of dense.params: its index in `eligible`, if it has one
  std::vector<std::int64_t> cut_r;
  std::int64_t shared = 0;          ///< what no split touches: other parameters, and buffers
  std::int64_t shared_trained = 0;  ///< of those, what the optimizer keeps state for
};

}  // namespace ab
