#pragma once
// SPDX-License-Identifier: MIT
//
// Many tensors summed over ranks in one collective, each with a weight of the rank's own: a mean over all
// ranks (weight 1/p) or over some of them (1/k on those, 0 on the others) are the uses.

#include <vector>

#include "engine/comm/comm.h"

namespace ab {

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

}  // namespace ab
