#pragma once
// SPDX-License-Identifier: MIT
//
// The base of methods that average compressed gradients and keep replicas equal. A run begins with ordinary
// data-parallel steps (phase "warmup"), as early gradients change fast and compress badly. After them (phase
// "compressed") a method exchanges what it makes of some gradients; the rest (biases, norms, what is too small) still
// goes through ordinary buckets. The part that a step could not send stays on its rank as a residual, which the method adds to
// the next gradient (error feedback: Seide et al. 2014; Karimireddy et al. 2019).
// Momentum, weight decay and clipping come afterwards, in the optimizer, on the gradient that all ranks share.
//
// Overflow. An infinity on one rank must reach all, or it would stay in a residual for ever while the others go on.
// So a payload that is made of a gradient that is not finite is not finite itself: in a product that comes about by
// itself, a selection marks its payload. A rank that finds the result not finite keeps residuals and factors as they were, and
// hands the optimizer gradients that all ranks treat alike: left out (Optimizer::set_skip_overflow), or an error.
// With 16 bits on the wire residuals take off what was to be sent, not what rounding made of it.

#include <memory>

#include "engine/kernels/elementwise.h"
#include "engine/kernels/finite_check.h"
#include "engine/sync/replica_strategy.h"

namespace ab {

/// How a method of compressed gradients begins.
struct CompressionStart {
  std::int64_t dense_steps = 0;  ///< steps with whole gradients
  GradientWire gradients{};
  std::uint64_t seed = 0;  ///< of what the method draws
};

/// Steps with whole gradients: as asked for, or, below 0, a tenth of the run.
inline std::int64_t dense_steps(std::int64_t asked, std::int64_t total_steps) {
  return asked >= 0 ? asked : (total_steps + 9) / 10;
}

class CompressedGradients : public ReplicaStrategy {
 public:
  static constexpr const char *kWarmup = "warmup", *kCompressed = "compressed";

  std::string phase() const final { return compressing_ ? kCompressed : kWarmup; }
  void start(TrainState& state) final { enter(state.step); }
  void finish_grads(TrainState& state) final {
    if (!compressing_) return buckets_->finish();
    check_.reset();
    exchange(state.step);
  }
  void after_step(TrainState& state) final { enter(state.step); }
  /// The last step of the warm-up lays out what compressed steps need.
  std::int64_t step_kind(std::int64_t step) const final {
    return step < start_.dense_steps ? step + 1 == start_.dense_steps : compressed_kind(step);
  }
  void save(StateDict& state) const final {
    if (compressing_) save_compression(state);
  }
  void load(const StateDict& saved, TrainState& state) final {
    enter(state.step);
    if (compressing_) load_compression(saved);
  }

 protected:
  CompressedGradients(Replica model, Comm& world, const CompressionStart& start)
      : ReplicaStrategy(std::move(model), world),
        start_(start),
        device_(replica().params.empty() ? Device{} : replica().params.front()->value.value().device()),
        check_(device_) {
    AB_CHECK(start_.dense_steps >= 0, "a run has no {} steps of warm-up", start_.dense_steps);
  }

  /// Once, when compressed steps begin: makes residuals (zeros) and buffers. Returns the parameters that are still
  /// exchanged in full, by buckets of their own.
  virtual std::vector<Param*> begin(std::int64_t step) = 0;
  /// A compressed step. On return every compressed parameter has the gradient that all ranks share. Calls finish_rest()
  /// once if begin() has returned some, before it reads failed().
  virtual void exchange(std::int64_t step) = 0;
  /// Tells compressed steps apart (step_kind()).
  virtual std::int64_t compressed_kind(std::int64_t /*step*/) const { return 0; }
  /// The state of a rank between two compressed steps; `name` begins all names.
  virtual void save_compression(StateDict& state) const = 0;
  virtual void load_compression(const StateDict& saved) = 0;

  /// Waits for the gradients that are exchanged in full.
  void finish_rest() {
    buckets_->finish();
    check_buckets(*buckets_);
  }

  /// In place, over all ranks, in the type that gradients have on the wire: the one way in which floats of a payload are
  /// summed. The result counts for failed().
  void reduce(const Tensor& payload, ReduceOp op) {
    if (payload.numel() == 0) return;
    const Tensor sent = cast(payload, start_.gradients.dtype);
    world().all_reduce(sent, op);
    cast_into(payload, sent);
    check_.add(payload);
  }

  /// Gradients that have arrived in buckets count for failed().
  void check_buckets(const GradientBuckets& buckets) const {
    for (const Tensor& result : buckets.results()) check_.add(result);
  }
  /// [1] float64 on the device: not zero when a result of this step is not finite.
  const Tensor& failed() const { return check_.failed(); }
  const FiniteCheck& check() const { return check_; }

  std::vector<Param*> trained_params() const {
    std::vector<Param*> trained;
    for (Param* p : replica().params)
      if (p->trainable()) trained.push_back(p);
    return trained;
  }
  Device device() const { return device_; }
  const CompressionStart& settings() const { return start_; }

 private:
  void enter(std::int64_t step) {
    const bool compress = step >= start_.dense_steps;
    if (buckets_ && compress == compressing_) return;
    compressing_ = compress;
    buckets_.reset();  // its hooks, before others take their places; then of what is exchanged in full
    buckets_ = std::make_unique<GradientBuckets>(compress ? begin(step) : replica().params, world(), ReduceOp::mean,
                                                 start_.gradients);
    buckets_->set_exchange(exchange_);
  }

  CompressionStart start_;
  Device device_;
  FiniteCheck check_;
  bool compressing_ = false;
};

}  // namespace ab
