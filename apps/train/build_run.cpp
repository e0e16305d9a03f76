// SPDX-License-Identifier: MIT
#include "apps/train/build_run.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <future>

#include "apps/train/stop_request.h"
#include "data/datasets.h"
#include "data/sampler.h"
#include "engine/comm/texts.h"
#include "engine/core/precision.h"
#include "engine/core/threads.h"
#include "engine/device/shapes/shapes.h"
#include "layers/model_state.h"

namespace ab {

TrainAndTest load_data(const TrainConfig& config, bool saves_lists) {
  const DatasetEntry& dataset = find_dataset(config.dataset);
  TrainAndTest images =
      dataset.load(folder_of(dataset, config.data_dir), config.train_samples, config.val_samples, saves_lists);
  return config.val_from_train > 0 ? hold_out(std::move(images.train), config.val_from_train) : images;
}

TrainAndTest load_data(const TrainConfig& config, Comm& processes) {
  if (!find_dataset(config.dataset).decodes || processes.size() == 1) return load_data(config);
  const Uncounted uncounted(processes.ledger());
  std::future<TrainAndTest> loading;
  TrainAndTest images;
  std::vector<std::string> found(static_cast<std::size_t>(processes.size()));
  while (
      std::ranges::any_of(found, &std::string::empty)) {  // they meet every second: a slow disk is no rank that is gone
    const bool is_first = processes.rank() == 0;
    if (!images.train && !loading.valid() && (is_first || !found[0].empty()))
      loading = std::async(std::launch::async, [&config, is_first] { return load_data(config, is_first); });
    if (loading.valid() && loading.wait_for(std::chrono::seconds(1)) == std::future_status::ready)
      images = loading.get();
    found = gather_texts(processes, images.train ? "found" : "");
  }
  return images;
}

double stall_timeout_seconds(const TrainConfig& config) { return static_cast<double>(config.timeout_s) / 2; }

std::int64_t look_ahead_updates(const TrainConfig& config, int world_size) {
  return world_size == 1 ? 1 : StopAgreement::lag(config.accumulate) + 2;
}

int prefetched_batches(const TrainConfig& config, const Dataset& set, int world_size) {
  const auto ahead = static_cast<int>(look_ahead_updates(config, world_size) * config.accumulate);
  return std::max(LoaderOptions{}.prefetch, set.reads_files() ? ahead : 0);
}

int loader_threads(const TrainConfig& config) {
  return config.loader_threads > 0 ? config.loader_threads : compute_threads();
}

int nodes_apart(const TrainConfig& config, const Comm& world) {
  if (config.cache_share != CacheShare::node) return 1;
  const std::vector<int>& node_of_rank = world.ledger().node_of_rank();
  const int ranks_on_node = world.ledger().ranks_on_node_of(0);
  AB_CHECK(node_of_rank == consecutive_nodes(world.size(), ranks_on_node) && world.size() % ranks_on_node == 0,
           "--cache-share node needs nodes of equally many ranks, and ranks of a node one after the other");
  return world.size() / ranks_on_node;
}

LoaderOptions make_loader_options(const TrainConfig& config, const Comm& world, const Dataset& set,
                                  std::shared_ptr<BadImages> bad_images) {
  LoaderOptions options;
  options.batch_size = config.batch_size;
  options.rank = world.rank();
  options.world_size = world.size();
  options.seed = config.seed;
  options.shuffle = config.shuffle;
  options.nodes = nodes_apart(config, world);
  options.image_size = static_cast<int>(config.image_size);
  for (std::size_t i = 0; i + 1 < config.image_sizes.size(); i += 2) {
    const std::int64_t begin = i == 0 ? 0 : options.epoch_sizes.back().end;
    options.epoch_sizes.push_back(
        {static_cast<int>(config.image_sizes[i]), begin + static_cast<std::int64_t>(config.image_sizes[i + 1])});
  }
  options.framing = config.framing;
  options.repeats = config.repeated_augment;
  options.augmentation = {.crop_and_flip = config.augment,
                          .shift = config.shift,
                          .trivial_augment = config.trivial_augment,
                          .random_erasing = config.random_erasing};
  for (std::size_t i = 0; i < config.color_jitter.size(); ++i)
    options.augmentation.color_jitter.at(i) = config.color_jitter[i];
  if (!config.rand_augment.empty()) {
    options.augmentation.rand_augment = static_cast<int>(config.rand_augment.at(0));
    options.augmentation.rand_augment_magnitude = static_cast<int>(config.rand_augment.at(1));
  }
  options.mix = {config.mixup, config.cutmix};
  options.bad_images = std::move(bad_images);
  options.prefetch = prefetched_batches(config, set, world.size());
  options.threads = loader_threads(config);
  options.stall_timeout_seconds = stall_timeout_seconds(config);
  return options;
}

ModelSpec make_model_spec(const TrainConfig& config, std::int64_t classes, std::int64_t image_size) {
  if (config.image_size > 0) image_size = config.image_size;
  return {.name = config.model,
          .classes = classes,
          .image_size = image_size,
          .width = config.width,
          .dropout = config.dropout,
          .drop_path = config.drop_path,
          .qkv_bias = config.qkv_bias,
          .seed = config.seed,
          .init = config.init};
}

std::int64_t steps_per_epoch(const TrainConfig& config, std::int64_t images, int world_size) {
  const Sampler sampler{.count = images, .batch_size = config.batch_size, .world_size = world_size};
  sampler.check();
  return (sampler.batches_per_epoch() + config.accumulate - 1) / config.accumulate;
}

LrSchedule make_schedule(const TrainConfig& config, std::int64_t steps_per_epoch) {
  const double per_epoch = static_cast<double>(steps_per_epoch);
  LrSchedule schedule;
  schedule.kind = config.schedule;
  schedule.peak = config.lr;
  schedule.start = schedule.end = config.min_lr;
  schedule.warmup_steps =
      config.warmup_steps > 0 ? config.warmup_steps : std::llround(config.warmup_epochs * per_epoch);
  schedule.total_steps = config.steps > 0 ? config.steps : config.epochs * steps_per_epoch;
  schedule.step_length = std::max<std::int64_t>(1, std::llround(config.lr_step_epochs * per_epoch));
  schedule.step_factor = config.lr_step_factor;
  schedule.steps_per_epoch = steps_per_epoch;
  return schedule;
}

namespace {

std::unique_ptr<Optimizer> make_chosen(const TrainConfig& config, std::vector<Param*> params, Comm* world) {
  if (config.optimizer == "adamw")
    return make_adamw(std::move(params), {config.betas.at(0), config.betas.at(1), config.epsilon, config.weight_decay});
  if (config.optimizer == "lars")
    return make_lars(std::move(params), {.momentum = config.momentum,
                                         .weight_decay = config.weight_decay,
                                         .trust = config.lars_trust,
                                         .sharing = config.lars_share_rates ? world : nullptr});
  return make_sgd(std::move(params), {config.momentum, config.weight_decay, config.nesterov});
}

void check_shared_rates(const TrainConfig& config, const Method& method) {
  if (!config.lars_share_rates) return;
  AB_CHECK(config.optimizer == "lars", "--lars-share-rates is for the optimizer lars, not {}", config.optimizer);
  AB_CHECK(
      method.average && !method.drifts,
      "--lars-share-rates needs a method that averages the gradients of all ranks in every step, which {} does not "
      "promise",
      method.name);
}

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const TrainConfig& config, std::vector<Param*> params, Comm* world) {
  check_shared_rates(config, find_method(config.method));
  auto optimizer = make_chosen(config, std::move(params), world);
  optimizer->set_max_grad_norm(config.max_grad_norm);
  optimizer->set_decay_vectors(config.decay_vectors);
  optimizer->set_vector_rate(config.vector_lr);
  optimizer->set_skip_overflow(precision_named(config.precision) == Precision::fp16);
  return optimizer;
}

void check_image_sizes(const TrainConfig& config) {
  const auto shapes_at = [&](std::int64_t side) {
    TrainConfig at_side = config;
    at_side.image_size = side;
    ModelSpec spec = make_model_spec(at_side, 10, side);
    spec.draw = false;
    const std::unique_ptr<Layer> model = make_model(spec, kShapesOfCpu);
    std::vector<Shape> shapes;
    for (const Param* p : all_params(*model)) shapes.push_back(p->value.shape());
    return shapes;
  };
  const std::int64_t last = config.image_size > 0 ? config.image_size : 224;  // of imagenet
  for (std::size_t i = 0; i < config.image_sizes.size(); i += 2) {
    const auto side = static_cast<std::int64_t>(config.image_sizes[i]);
    AB_CHECK(
        shapes_at(side) == shapes_at(last),
        "--image-sizes is for models with the same weights at every size; those of {} differ between {} and {} pixels",
        config.model, side, last);
  }
}

void check_run(const TrainConfig& config, const Method& method, int world_size) {
  AB_CHECK((config.steps > 0) != (config.epochs > 0), "a run takes either epochs or steps, got {} and {}",
           config.epochs, config.steps);
  check_shared_rates(config, method);
  check_image_sizes(config);
  ModelSpec spec = make_model_spec(config, 10, config.image_size > 0 ? config.image_size : 32);
  spec.draw = false;  // for its names and shapes alone
  const std::unique_ptr<Layer> model = make_model(spec);
  if (method.check) method.check(config, *model, world_size);
}

void check_warm_up(const TrainConfig& config, const LrSchedule& schedule) {
  if (schedule.warmup_steps == 0 || schedule.warmup_steps < schedule.total_steps) return;
  const std::string warm_up = config.warmup_steps > 0 ? fmt::format("--warmup-steps {}", config.warmup_steps)
                                                      : fmt::format("--warmup-epochs {} ({} steps)",
                                                                    config.warmup_epochs, schedule.warmup_steps);
  const std::string run = config.steps > 0 ? fmt::format("--steps {}", config.steps)
                                           : fmt::format("--epochs {} ({} steps)", config.epochs, schedule.total_steps);
  throw Error(ErrorKind::config,
              fmt::format("{} does not end within {}, so the rate would never reach --lr; shorten the "
                          "warm-up or train longer",
                          warm_up, run));
}

void check_length(const TrainConfig& config, const Method& method, std::int64_t images, int world_size) {
  const LrSchedule schedule = make_schedule(config, steps_per_epoch(config, images, world_size));
  if (config.resume.empty()) check_warm_up(config, schedule);  // a run that goes on keeps what it began with
  if (method.check_length) method.check_length(config, schedule);
}

}  // namespace ab
