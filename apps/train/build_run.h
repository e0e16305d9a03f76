#pragma once
// SPDX-License-Identifier: MIT
//
// From the words of a TrainConfig to the objects of a run.

#include <memory>

#include "apps/methods/method.h"
#include "data/dataset.h"
#include "data/loader.h"
#include "engine/comm/comm.h"
#include "engine/optim/optimizer.h"
#include "layers/models/models.h"

namespace ab {

/// Loads (or, for synthetic, draws) the data set, cut to train_samples and val_samples, or with images to validate on from those.
/// `saves_lists`: load_imagenet().
TrainAndTest load_data(const TrainConfig& config, bool saves_lists = true);
/// Collective, of ranks that are processes: where images are files the first rank looks for them, and then the others with the
/// list that it has saved. When it throws, they go on to wait for it, until it tells them (Comm::abort()).
TrainAndTest load_data(const TrainConfig& config, Comm& processes);

/// How many updates have their images at hand before a rank begins the first of them, where they come from files: as many as
/// it takes to agree with other ranks to stop before the one that lacks an image.
std::int64_t look_ahead_updates(const TrainConfig& config, int world_size);
/// Batches that a rank's loader keeps ready ahead.
int prefetched_batches(const TrainConfig& config, const Dataset& set, int world_size);

/// How long a rank waits for an image of its own: less than other ranks wait for it, so that the run ends with what
/// went wrong.
double stall_timeout_seconds(const TrainConfig& config);

/// Threads of a loader, which share its batches.
int loader_threads(const TrainConfig& config);
/// How many nodes keep the images that they train on to themselves (--cache-share node); else 1.
int nodes_apart(const TrainConfig& config, const Comm& world);
/// The share of this rank in `set`.
LoaderOptions make_loader_options(const TrainConfig& config, const Comm& world, const Dataset& set,
                                  std::shared_ptr<BadImages> bad_images);

/// The model of a run, for images of that many classes, of that size unless config.image_size says otherwise.
ModelSpec make_model_spec(const TrainConfig& config, std::int64_t classes, std::int64_t image_size);

/// Updates in a pass over so many images: one for every `accumulate` batches, and one for what is left of them. Throws
/// Error(config) when they are less than one batch for each rank.
std::int64_t steps_per_epoch(const TrainConfig& config, std::int64_t images, int world_size);
LrSchedule make_schedule(const TrainConfig& config, std::int64_t steps_per_epoch);
/// `world`: the ranks that may share out its work; null: none.
std::unique_ptr<Optimizer> make_optimizer(const TrainConfig& config, std::vector<Param*> params, Comm* world = nullptr);
/// Throws Error(config) unless the model has the same weights for all sizes of config.image_sizes.
void check_image_sizes(const TrainConfig& config);
/// Throws Error(config) when the run has no length, the model cannot be built, or the method refuses the run; asked
/// before anything is loaded or written.
void check_run(const TrainConfig& config, const Method& method, int world_size);
/// Throws Error(config) for a warm-up that does not end within the run, which would train at other rates than was asked for
/// without a word.
void check_warm_up(const TrainConfig& config, const LrSchedule& schedule);
/// As check_run() for what the number of its images makes impossible.
void check_length(const TrainConfig& config, const Method& method, std::int64_t images, int world_size);

}  // namespace ab
