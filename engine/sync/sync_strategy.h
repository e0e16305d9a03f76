#pragma once
// SPDX-License-Identifier: MIT
//
// How ranks keep their models together: the one interface behind which all methods run.
// The training loop knows a strategy by these events and nothing else.
// Bytes are counted by Comm, under the phase that the strategy is in (the loop sets it in the ledger before
// every step); a strategy only names the collectives of a transition apart.

#include <cstdint>
#include <map>
#include <string>

#include "engine/io/metrics_log.h"
#include "engine/io/state_dict.h"
#include "engine/optim/optimizer.h"

namespace ab {

/// The loop shares it with a strategy.
struct TrainState {
  std::int64_t step = 0;  ///< optimizer updates done
  Optimizer& optimizer;
  /// A cut tells here what it has observed of weights, by their names, for metrics.jsonl.
  std::map<std::string, LayerSensitivity> sensitivity{};
};

class SyncStrategy {
 public:
  virtual ~SyncStrategy() = default;

  /// Once, before the first step. Constructors have already given all ranks the same model.
  virtual void start(TrainState& /*state*/) {}
  /// The name of the present phase, as it appears in metrics and in the ledger.
  virtual std::string phase() const = 0;
  /// The rate for the next update, given what the schedule says.
  virtual double learning_rate(double scheduled, std::int64_t /*step*/) const { return scheduled; }
  /// While off, backward passes only add to this rank's gradients: all micro-batches of an update but the last.
  virtual void set_gradient_exchange(bool on) = 0;
  /// Whether ranks that are processes exchange some gradients while backward computes others (GradientBuckets): then a step is
  /// not captured as one graph.
  virtual bool exchanges_in_backward() const { return false; }
  /// After backward: on return every p.grad is what the optimizer shall see.
  virtual void finish_grads(TrainState& state) = 0;
  /// Whether after_step() will put others in the place of parameters once `step` updates are done, or change what a step
  /// computes. Before that the loop waits for the device, makes sure that all numbers are finite, and gives back what a step keeps.
  virtual bool has_transition(std::int64_t /*step*/) const { return false; }
  /// After the update; state.step already counts it. May average, factorise or replace parameters.
  virtual void after_step(TrainState& /*state*/) {}
  /// Whether on_epoch_end() is to be called, for which the ranks add up two float64 each, in the present phase.
  virtual bool follows_epochs() const { return false; }
  static constexpr std::int64_t kEpochLossBytes = 2 * 8;
  /// After the last update of every epoch, with the mean loss of its updates over all ranks.
  virtual void on_epoch_end(TrainState& /*state*/, double /*mean_loss*/) {}
  /// The decisions of on_epoch_end() for the epochs to come, for metrics.jsonl and for a plan that follows a run.
  virtual std::map<std::string, std::int64_t> decision() const { return {}; }
  /// Between the two, all ranks hold one and the same model; training continues as if nothing had been.
  virtual void begin_evaluation(TrainState& state) = 0;
  virtual void end_evaluation(TrainState& /*state*/) {}
  /// After the last step: all ranks hold the final model.
  virtual void finish(TrainState& state) = 0;
  /// After that, and after an average of weights has taken the model: the form in which the run leaves it.
  virtual void leave(TrainState& /*state*/) {}
  /// Whether all ranks hold the same parameters at present.
  virtual bool replicas_agree() const { return true; }

  /// Steps of one kind exchange the same while the model keeps its form: a rehearsal (apps/plan/rehearsal.h) takes one of
  /// them and passes over the others. This is the kind of the update after `step`; updates of different phases differ anyway.
  virtual std::int64_t step_kind(std::int64_t /*step*/) const { return 0; }
  /// In place of a step that has no transition after it and whose kind has been taken: as after_step(), but nothing is
  /// exchanged or computed.
  virtual void pass(TrainState& /*state*/) {}
  /// The part that `rank` has and others have not: ranks of one role whose groups lie alike on nodes send alike.
  virtual std::string role(int /*rank*/) const { return {}; }

  /// The state of this rank between two steps, beyond the model and the optimizer; load() takes the place
  /// of start() and finds the model restored.
  virtual void save(StateDict& /*state*/) const {}
  virtual void load(const StateDict& /*saved*/, TrainState& /*state*/) {}
};

}  // namespace ab
