// SPDX-License-Identifier: MIT
#include "engine/sync/parameter_mean.h"

#include "engine/kernels/elementwise.h"
#include "engine/sync/flat_parts.h"

namespace ab {

ParameterMean::ParameterMean(std::vector<Tensor> params, DType wire) : params_(std::move(params)), wire_(wire) {
  if (!in_16_bits()) return;
  reference_ = flat_like(params_);
  agree();
}

Tensor ParameterMean::over(Comm& comm, double weight) const {
  const Tensor flat = flat_like(params_);
  gather_parts(params_, flat);
  if (in_16_bits()) axpy(-1, reference_, flat);
  if (weight != 1) scale_in_place(flat, weight);
  const Tensor sent = cast(flat, wire_);
  comm.all_reduce(sent, ReduceOp::mean);
  if (in_16_bits()) {
    cast_into(flat, sent);
    add_in_place(flat, reference_);
  }
  return flat;
}

void ParameterMean::agree() {
  if (in_16_bits()) gather_parts(params_, reference_);
}

}  // namespace ab
