#pragma once
// SPDX-License-Identifier: MIT
//
// From the words of a TrainConfig to the objects of a run.

#include <memory>

#include "ablowrank/options.h"
#include "apps/config.h"
#include "data/dataset.h"
#include "data/loader.h"
#include "engine/comm/comm.h"
#include "engine/optim/optimizer.h"
#include "engine/optim/schedule.h"
#include "engine/sync/sync_strategy.h"
#include "layers/models/models.h"

namespace ab {

/// Loads (or, for synthetic, draws) the data set, cut to train_samples and val_samples.
TrainAndTest load_data(const TrainConfig& config);

/// The share of this rank in it.
LoaderOptions make_loader_options(const TrainConfig& config, const Comm& world);

/// The model of a run, for images of that many classes, of that size unless config.image_size says otherwise.
ModelSpec make_model_spec(const TrainConfig& config, std::int64_t classes, std::int64_t image_size);

/// Updates in a pass over the data: one for every `accumulate` batches, and one for what is left of them.
std::int64_t updates_per_epoch(const TrainConfig& config, std::int64_t batches_per_epoch);
/// How long a run is.
std::int64_t total_steps(const TrainConfig& config, std::int64_t updates_per_epoch);

LrSchedule make_schedule(const TrainConfig& config, std::int64_t updates_per_epoch);
std::unique_ptr<Optimizer> make_optimizer(const TrainConfig& config, std::vector<Param*> params);
/// What ranks r are rounded up to. 0 stands for what suits the device: on a GPU rows of factors in 16 bits that begin at
/// every 16 bytes, on a CPU nothing.
std::int64_t rank_multiple(const TrainConfig& config);
AbOptions make_ab_options(const TrainConfig& config);
/// Throws Error(config) when the method's settings exclude each other or do not fit the number of ranks; asked
/// before anything is loaded or written.
void check_method(const TrainConfig& config, int world_size);
/// Gives the parameters of --ab.always-sync their role; throws Error(config) for a name the model lacks.
void mark_always_sync(const std::vector<std::string>& names, Layer& model);
std::unique_ptr<SyncStrategy> make_strategy(const TrainConfig& config, Layer& model, Comm& world,
                                            const LrSchedule& schedule);

}  // namespace ab
