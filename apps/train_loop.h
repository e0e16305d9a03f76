#pragma once
// SPDX-License-Identifier: MIT
//
// The one training loop: every method, every transport, one rank.

#include <functional>
#include <string>

#include "apps/config.h"
#include "apps/evaluate.h"
#include "apps/summary.h"
#include "data/dataset.h"
#include "engine/comm/comm.h"
#include "engine/io/metrics_log.h"
#include "layers/layer.h"

namespace ab {

/// What the loop tells while it runs; called on rank 0 only. Any of them may be empty.
struct TrainListener {
  std::function<void(const StepMetrics&, std::int64_t total_steps)> on_step;  ///< every log_every steps
  std::function<void(const EpochMetrics&)> on_epoch;
  std::function<void(const SplitMetrics&)> on_split;
};

struct TrainResult {
  Summary summary;               ///< complete on all ranks
  std::unique_ptr<Layer> model;  ///< the same on all ranks
};

/// Trains as `config` says. Collective over `world`. Throws Error(numerics) when the loss is no longer finite.
TrainResult train(const TrainConfig& config, Comm& world, const TrainAndTest& data, const TrainListener& listener);

}  // namespace ab
