#pragma once
// SPDX-License-Identifier: MIT
//
// A run as its plan sees it: how long it is, over which ranks, and what it exchanges beside its method. A plan counts
// the same collectives through the same Ledger as training, each with the number of times that it happens, so every
// byte figure equals what training counts; the work does not grow with steps.

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/comm/ledger.h"
#include "engine/core/check.h"
#include "engine/io/metrics_log.h"
#include "engine/optim/schedule.h"
#include "engine/sync/gradient_buckets.h"

namespace ab {

/// A collective beside those of the method: sums of a validation, statistics of batch norm.
struct ExtraCollective {
  enum class Over {
    world,
    gradients,  ///< the ranks that average gradients in the phase
  };
  Collective what = Collective::all_reduce;
  std::int64_t bytes = 0;  ///< payload
  std::int64_t times = 1;  ///< each time it takes place
  Over over = Over::world;
  int least_ranks = 1;          ///< smaller groups do without it
  std::string label{};          ///< of the communicator; empty: that of the ranks it goes over
  std::string phase{};          ///< in the ledger; empty: the one that it takes place in
  std::int64_t waited_for = 0;  ///< so many steps later, of an all-reduce
};

/// Ranks r of factors that stand in for those which only training can tell.
struct AssumedR {
  double ratio = 0;                              ///< > 0: r = ratio · n
  std::string run{};                             ///< a trained run to take them from; empty: none
  std::vector<std::vector<LayerRank>> splits{};  ///< those of that run, one after the other
  std::vector<LayerRank> final_r{};              ///< those that it ended with, where it tells them apart
  bool as_left = false;                          ///< only those of the model as that run left it
};

/// Where a planned run is part of a longer one: its steps from `first_step` up to PlannedRun::total_steps.
struct RunPart {
  std::int64_t first_step = 0;   ///< one that no validation precedes immediately
  std::int64_t whole_steps = 0;  ///< of the longer run; 0: this is all of it
  std::string phase{};           ///< of its steps in the ledger; empty: as the method calls them
};

struct PlannedRun {
  int world_size = 1, ranks_per_node = 0;
  Wiring wiring{};
  std::int64_t total_steps = 0, steps_per_epoch = 0;
  RunPart part{};
  LrSchedule schedule{};
  std::int64_t eval_every = 1;  ///< epochs between validations; 0: only at the end
  GradientWire gradients{};
  int moments_per_parameter = 1;        ///< Optimizer::moments_per_parameter()
  bool averages_weights = false;        ///< layers/weight_average.h
  std::int64_t micro_batches = 1;       ///< of a step
  std::int64_t last_micro_batches = 1;  ///< of the last step in an epoch
  std::vector<ExtraCollective> at_setup{}, every_step{}, every_micro_batch{}, every_evaluation{};
  std::vector<ExtraCollective> every_evaluation_but_last{};
  AssumedR assumed{};
  std::vector<DecisionMetrics> decisions{};  ///< of a trained run that this one shall follow; empty: of none

  /// Of gradients, or what a method makes of them, on the wire.
  std::int64_t wire_bytes(std::int64_t elements) const {
    return elements * static_cast<std::int64_t>(size_of(gradients.dtype));
  }
  /// Throws Error(config) for a run that is too long to be walked (more than 10⁹ steps), or of no length.
  void check() const;
  /// What shares of a run are shares of.
  std::int64_t whole_steps() const { return part.whole_steps > 0 ? part.whole_steps : total_steps; }
  /// Whether it holds the last step.
  bool ends() const { return total_steps == whole_steps(); }
  /// Of the whole run.
  std::int64_t epochs() const { return (whole_steps() + steps_per_epoch - 1) / steps_per_epoch; }
  /// Steps from one validation to the next.
  std::int64_t evaluation_period() const {
    return eval_every > 0 ? std::min(eval_every, epochs()) * steps_per_epoch : whole_steps();
  }
  /// Validations, that at the end of a whole run among them.
  std::int64_t evaluations() const {
    const std::int64_t last = ends() ? (total_steps - 1) / evaluation_period() + 1 : total_steps / evaluation_period();
    return last - part.first_step / evaluation_period();
  }
};

/// Steps of one kind, and how many of them are the last of their epoch (whose window of micro-batches may be smaller).
struct StepCount {
  std::int64_t steps = 0, last_of_epoch = 0;
  bool operator==(const StepCount&) const = default;
};
inline StepCount all_steps(const PlannedRun& run) {
  const std::int64_t first = run.part.first_step;
  return {run.total_steps - first, run.total_steps / run.steps_per_epoch - first / run.steps_per_epoch};
}

/// Goes through a run from event to event instead of from step to step. Of `visitor` it calls, in order,
///   transition(step)    at step 0 and at each that next_transition(step) has named
///   steps(StepCount)    for the updates up to the next event
///   evaluate(step)      for a validation, the one at the end left out
template <class Visitor> void walk(const PlannedRun& run, Visitor& visitor) {
  run.check();
  const std::int64_t period = run.evaluation_period();
  visitor.transition(0);
  for (std::int64_t step = 0; step < run.total_steps;) {
    const std::int64_t next = std::min({run.total_steps, (step / period + 1) * period, visitor.next_transition(step)});
    visitor.steps({next - step, next / run.steps_per_epoch - step / run.steps_per_epoch});
    step = next;
    visitor.transition(step);
    if (step < run.total_steps && step % period == 0) visitor.evaluate(step);
  }
}

}  // namespace ab
