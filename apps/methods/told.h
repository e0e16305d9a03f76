#pragma once
// SPDX-License-Identifier: MIT
//
// What only training could tell of a run, for the rehearsal of one that is not trained (engine/sync/unknowns.h): assumed,
// bounded, or taken from a trained run.

#include <optional>
#include <vector>

#include "apps/settings/train_config.h"
#include "engine/io/metrics_log.h"
#include "engine/optim/schedule.h"
#include "engine/sync/unknowns.h"
#include "layers/layer.h"

namespace ab {

/// Ranks r of factors that stand in for those which only training can tell.
struct AssumedR {
  double ratio = 0;                              ///< > 0: r = ratio · n
  std::string run{};                             ///< a trained run to take them from; empty: none
  std::vector<std::vector<LayerRank>> splits{};  ///< those of that run, one after the other
  std::vector<LayerRank> final_r{};              ///< those that it ended with, where it tells them apart
  bool as_left = false;                          ///< only those of the model as that run left it
};

/// What is known of a run beside its configuration.
struct RunFacts {
  int world_size = 1;
  LrSchedule schedule{};
  AssumedR assumed{};                        ///< ranks r that stand in for those which training chooses
  std::vector<DecisionMetrics> decisions{};  ///< of a trained run that this one shall follow; empty: of none
};

/// A run that it may become.
struct Told {
  Unknowns unknowns{};
  std::optional<TrainConfig> config{};  ///< of a run that certainly sends no less, in place of its own
};

/// Those that send as much as any, and those that send as little: the last one. One alone: it is known.
using MayBecome = std::vector<Told>;

/// `model` is dense.
MayBecome told_ab(const TrainConfig& config, Layer& model, const RunFacts& facts);
MayBecome told_late_cut(const TrainConfig& config, Layer& model, const RunFacts& facts);

}  // namespace ab
