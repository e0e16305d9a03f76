#pragma once
// SPDX-License-Identifier: MIT
//
// The table that a fused update runs over: where the values, gradients and moments of all parameters are, on the
// device that updates them. It is made anew only when one of them moves: when AB-training splits or rejoins, and where a
// rank alone has no graph, whenever the allocator gives its gradients other places than before.

#include <vector>

#include "engine/core/host_read.h"
#include "engine/kernels/optim.h"

namespace ab {

class UpdateTable {
 public:
  /// The parameters of the next update, whole, with their `updates` counted, this one included.
  void hold(std::vector<ParamSlice> params, Device device);
  SliceTable slices() const;
  /// Updates since the table was made: what was counted is slice.updates + age().
  std::int64_t age() const { return age_; }

  /// Takes the joint norm of all gradients; the result stays on the device, valid until the next hold().
  const GradNorm* measure(double max_norm);
  /// What was measured since hold(); see grad_norm_of().
  HostRead read_grad_norm() const { return norm_.defined() ? HostRead(norm_) : HostRead(); }

 private:
  void cut();

  std::vector<ParamSlice> params_;
  Device device_;
  std::int64_t age_ = 0;
  Tensor slices_, partial_, norm_;  // norm_: a GradNorm, undefined until measured
};

/// The joint norm that was read, 0 when none was. Waits for it.
double grad_norm_of(HostRead& read);

}  // namespace ab
