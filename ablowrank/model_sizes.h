#pragma once
// SPDX-License-Identifier: MIT
//
// How large the parts of a model are, dense or split: all that plans of traffic and memory need of it.

#include <map>
#include <optional>
#include <vector>

#include "ablowrank/groups.h"
#include "layers/layer.h"
#include "layers/weight.h"

namespace ab {

struct PlannedParam {
  std::int64_t elements = 0;  ///< of the dense tensor
  bool trainable = true;
  std::optional<std::size_t> weight = {};  ///< index in `eligible` when it can be split
};

/// Sizes are numbers of elements. Refers to the weights of the model, which must stay.
struct ModelSizes {
  /// `cut_ranks`: r of every eligible weight after a cut. Without `low_rank` no weight is eligible. Throws
  /// Error(config) when the number or the size of the ranks does not fit the model.
  ModelSizes(Layer& model, std::vector<std::int64_t> cut_ranks, bool low_rank);

  /// The rank of an eligible weight after a split.
  std::int64_t r(std::size_t weight, bool cut) const {
    return cut ? cut_ranks[weight] : eligible[weight]->n();
  }
  std::int64_t factor_elements(std::size_t weight, Factor factor, std::int64_t r) const {
    return r * (factor == Factor::a ? eligible[weight]->m() : eligible[weight]->n());
  }

  std::vector<PlannedParam> params;  ///< in forward order
  std::vector<Weight*> eligible;     ///< eligible_weights()
  std::vector<std::int64_t> cut_ranks;
  std::map<DType, std::int64_t> model_by_type;  ///< parameters and buffers
  std::map<DType, std::int64_t> buffers_by_type;
  std::int64_t shared = 0;          ///< what no split touches: other parameters, and buffers
  std::int64_t shared_trained = 0;  ///< of those, what the optimizer keeps state for
};

}  // namespace ab
