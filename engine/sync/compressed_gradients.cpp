// SPDX-License-Identifier: MIT
#include "engine/sync/compressed_gradients.h"

#include "engine/kernels/elementwise.h"

namespace ab {
namespace {

Device device_of(const std::vector<Param*>& params) {
  return params.empty() ? Device{} : params.front()->value.value().device();
}

}  // namespace

CompressedGradients::CompressedGradients(Replica replica, Comm& world, const CompressionStart& start)
    : ReplicaStrategy(std::move(replica), world),
      start_(start),
      device_(device_of(this->replica().params)),
      check_(device_) {
  AB_CHECK(start_.dense_steps >= 0, "a run has no {} steps of warm-up", start_.dense_steps);
}

std::vector<Param*> CompressedGradients::trained_params() const {
  std::vector<Param*> trained;
  for (Param* p : replica().params)
    if (p->trainable()) trained.push_back(p);
  return trained;
}

void CompressedGradients::enter(std::int64_t step) {
  const bool compress = step >= start_.dense_steps;
  if (buckets_ && compress == compressing_) return;
  compressing_ = compress;
  buckets_.reset();  // its hooks, before others take their places
  buckets_ = std::make_unique<GradientBuckets>(compress ? begin(step) : replica().params, world(), ReduceOp::mean,
                                               start_.gradients);
  buckets_->set_exchange(exchange_);
}

void CompressedGradients::start(TrainState& state) { enter(state.step); }

void CompressedGradients::set_gradient_exchange(bool on) {
  exchange_ = on;
  if (buckets_) buckets_->set_exchange(on);
}

void CompressedGradients::finish_grads(TrainState& state) {
  if (!compressing_) return buckets_->finish();
  check_.reset();
  exchange(state.step);
}

void CompressedGradients::after_step(TrainState& state) { enter(state.step); }

void CompressedGradients::finish_rest() {
  buckets_->finish();
  check_buckets(*buckets_);
}

void CompressedGradients::check_buckets(const GradientBuckets& buckets) const {
  for (const Tensor& result : buckets.results()) check_.add(result);
}

void CompressedGradients::reduce(const Tensor& payload, ReduceOp op) {
  if (payload.numel() == 0) return;
  const Tensor sent = cast(payload, start_.gradients.dtype);
  world().all_reduce(sent, op);
  cast_into(payload, sent);
  check_.add(payload);
}

void CompressedGradients::save(StateDict& state) const {
  if (compressing_) save_compression(state);
}

void CompressedGradients::load(const StateDict& saved, TrainState& state) {
  enter(state.step);
  if (compressing_) load_compression(saved);
}

}  // namespace ab
