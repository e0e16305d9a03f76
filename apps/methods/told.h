#pragma once
// SPDX-License-Identifier: MIT
//
// The decisions of training, for the rehearsal of a run that is not trained (engine/sync/unknowns.h): assumed, bounded, or
// taken from a trained run.

#include <optional>
#include <vector>

#include "apps/settings/train_config.h"
#include "engine/io/metrics_log.h"
#include "engine/optim/schedule.h"
#include "engine/sync/unknowns.h"
#include "layers/layer.h"

namespace ab {

/// Ranks r of factors in place of those that training chooses.
struct AssumedR {
  double ratio = 0;                              ///< > 0: r = ratio · n
  double unknown_ratio = 0;                      ///< the same where a plan would be refused without; 0: it is
  std::string run{};                             ///< a trained run to take them from; empty: none
  std::vector<std::vector<LayerRank>> splits{};  ///< those of that run, one after the other
  std::vector<LayerRank> final_r{};              ///< those that it ended with, where it tells them apart
  bool as_left = false;                          ///< only those of the model as that run left it
};

/// A run, beside its configuration.
struct RunFacts {
  int world_size = 1;
  LrSchedule schedule{};
  AssumedR assumed{};
  std::vector<DecisionMetrics> decisions{};  ///< of a trained run that this one shall follow; empty: of none
};

/// A run that it may become.
struct Told {
  Unknowns unknowns{};
  std::optional<TrainConfig> config{};  ///< in place of its own
};

/// No run sends more in a phase than all of `most`, nor less than all of `least`.
struct MayBecome {
  std::vector<Told> most{Told{}};
  std::vector<Told> least{};  ///< empty: `most` is one run, and known
};

/// `model` is dense. Throw Error(config) where a run cannot be planned with what is known.
MayBecome told_ab(const TrainConfig& config, Layer& model, const RunFacts& facts);
MayBecome told_late_cut(const TrainConfig& config, Layer& model, const RunFacts& facts);

}  // namespace ab
