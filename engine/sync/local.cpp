// SPDX-License-Identifier: MIT
#include "engine/sync/local.h"

#include <cmath>

#include "engine/sync/flat.h"

namespace ab {

std::int64_t round_length(const LocalOptions& options, const LrSchedule& schedule, std::int64_t step) {
  const std::int64_t left = std::max<std::int64_t>(1, schedule.total_steps - step);
  if (step < options.every_step_until) return 1;
  std::int64_t length = options.average_every;
  if (options.qsr_alpha > 0 && step >= schedule.warmup_steps) {
    // A rate that falls to zero makes this infinite, so it becomes an integer only when it is known to be small.
    const double by_rate = std::pow(options.qsr_alpha / schedule.at(step), options.qsr_power);
    if (!(by_rate < static_cast<double>(left))) return left;
    length = std::max(length, static_cast<std::int64_t>(by_rate));
  }
  return std::min(length, left);
}

LocalStrategy::LocalStrategy(Replica replica, Comm& world, const LocalOptions& options, const LrSchedule& schedule,
                             SyncBn sync_bn, const GradientWire& wire)
    : ReplicaStrategy(std::move(replica), world, sync_bn,
                      [node = std::max(1, options.node_size)](int rank) { return rank / node; }),
      options_(options),
      schedule_(schedule),
      mean_(this->replica().values(), wire.dtype) {
  AB_CHECK(options_.average_every >= 1, "local training averages every H >= 1 steps, got {}", options_.average_every);
  if (options_.node_size == 1) return;
  node_ = split_nodes(world, {world.size(), options_.node_size});
  gradients_.emplace(this->replica().params, *node_, ReduceOp::mean, wire);
}

void LocalStrategy::set_gradient_exchange(bool on) {
  if (gradients_) gradients_->set_exchange(on);
}

void LocalStrategy::finish_grads(TrainState&) {
  if (gradients_) gradients_->finish();
}

void LocalStrategy::enter_average() {
  if (world().ledger().phase() == kSteps) world().ledger().set_phase(kAverage);
}

void LocalStrategy::average() {
  if (!mean_.in_16_bits()) return all_reduce_flat(world(), replica().tensors(), ReduceOp::mean);
  scatter_parts(mean_.over(world()), mean_.params());
  average_buffers();
}

void LocalStrategy::after_step(TrainState& state) {
  agree_ = state.step == round_end_;
  if (!agree_) return;
  enter_average();
  average();
  mean_.agree();
  begin_round(state.step);
}

void LocalStrategy::pass(TrainState& state) {
  agree_ = state.step == round_end_;
  if (agree_) begin_round(state.step);
}

void LocalStrategy::begin_evaluation(TrainState&) {
  if (agree_) return;
  set_aside();
  average();
}

void LocalStrategy::finish(TrainState&) {
  if (agree_) return;
  enter_average();
  average();
  agree_ = true;
}

void LocalStrategy::save(StateDict& state) const {
  state.put("local.round_end", round_end_);
  state.put("local.agree", std::int64_t{agree_});
  if (mean_.in_16_bits()) state.put("local.reference", mean_.reference());
}

void LocalStrategy::load(const StateDict& saved, TrainState& state) {
  if (mean_.in_16_bits()) mean_.reference().copy_from(saved.tensor("local.reference"));
  if (saved.has("local.round_end")) {
    round_end_ = saved.integer("local.round_end");
    agree_ = saved.integer("local.agree") != 0;
    return;
  }
  round_end_ = 0;  // by an earlier version, of a run that was local from its first step
  while (round_end_ < state.step) begin_round(round_end_);
  agree_ = round_end_ == state.step;
  if (agree_) begin_round(state.step);
}

}  // namespace ab
