#pragma once
// SPDX-License-Identifier: MIT
//
// How large the parts of a dense model are: all that plans of traffic and memory need of it. Sizes are numbers of
// elements. layers/model_sizes.h measures a model.

#include <cstdint>
#include <map>
#include <vector>

#include "engine/core/dtype.h"

namespace ab {

struct ModelSizes {
  struct Parameter {
    std::int64_t elements = 0;
    bool trainable = true;
  };
  std::vector<Parameter> params;                ///< in forward order
  std::map<DType, std::int64_t> model_by_type;  ///< parameters and buffers
  std::map<DType, std::int64_t> buffers_by_type;

  std::int64_t parameters() const {
    std::int64_t elements = 0;
    for (const Parameter& p : params) elements += p.elements;
    return elements;
  }
  /// The sizes of the trained parameters, in forward order.
  std::vector<std::int64_t> gradients() const {
    std::vector<std::int64_t> elements;
    for (const Parameter& p : params)
      if (p.trainable) elements.push_back(p.elements);
    return elements;
  }
};

}  // namespace ab
