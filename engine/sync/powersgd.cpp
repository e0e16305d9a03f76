// SPDX-License-Identifier: MIT
#include "engine/sync/powersgd.h"

#include "engine/backend/backend.h"

namespace ab {

PowerSgdStrategy::PowerSgdStrategy(Replica replica, Comm& world, const PowerSgdOptions& options,
                                   const CompressionStart& start)
    : CompressedGradients(std::move(replica), world, start), options_(options) {
  options_.check("PowerSGD");
}

std::vector<Param*> PowerSgdStrategy::begin(std::int64_t) {
  gradients_ = std::make_unique<LowRankGradients>(
      trained_params(), [this](const Shape& shape) { return low_rank_sizes(shape, options_); }, settings().seed, kName);
  return gradients_->rest();
}

void PowerSgdStrategy::exchange(std::int64_t step) {
  const LowRankGradients& g = *gradients_;
  g.keep_factors();
  // Q is as long as gradients are, and P would be as long as their squares: too short for float16. Its rows span the same.
  if (settings().gradients.dtype == DType::float16) g.orthonormalise_q(step);
  for (const LowRankMatrix& w : g.matrices()) add_and_project(w.gradient(), w.residual, w.q, w.work, w.p);
  reduce(g.all_p(), ReduceOp::sum);
  g.orthonormalise_p(step);
  for (const LowRankMatrix& w : g.matrices()) backend(device()).gemm({}, w.p, w.work, w.q);  // Q_w = P·M_w
  g.note_own_q();
  reduce(g.all_q(), ReduceOp::mean);
  finish_rest();
  for (const LowRankMatrix& w : g.matrices())
    split_off_projection({w.p, w.own_q}, {w.p, w.q}, failed(), w.work, w.residual);
  g.restore_factors(check());
  g.hand_over();
}

}  // namespace ab
