#pragma once
// SPDX-License-Identifier: MIT
//
// Means of parameters over ranks whose replicas have drifted apart. In 16 bits the parameters themselves must not
// travel, as small updates would be lost in rounding them; there the ranks send how far each has come from a reference
// r that all of them hold, the model that they last had in common:
//   float32   θ ← mean over ranks of θ          16 bits   θ ← r + mean over ranks of (θ − r)

#include <vector>

#include "engine/comm/comm.h"

namespace ab {

class ParameterMean {
 public:
  /// `wire`: the type that travels. `params` are float32 on one device, equal on all ranks now, and outlive this.
  ParameterMean(std::vector<Tensor> params, DType wire);

  bool in_16_bits() const { return wire_ != DType::float32; }
  const std::vector<Tensor>& params() const { return params_; }

  /// The mean over the ranks of `comm`, flat; this rank's parameters count `weight` times. One all-reduce.
  Tensor over(Comm& comm, double weight = 1) const;
  /// All ranks hold the present parameters.
  void agree();

  /// What a rank that has drifted cannot know otherwise; undefined in float32.
  const Tensor& reference() const { return reference_; }

 private:
  std::vector<Tensor> params_;
  DType wire_;
  Tensor reference_;  // flat
};

}  // namespace ab
