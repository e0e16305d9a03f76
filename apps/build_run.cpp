// SPDX-License-Identifier: MIT
#include "apps/build_run.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "ablowrank/ab_strategy.h"
#include "data/imagenet.h"
#include "data/synthetic.h"
#include "engine/core/precision.h"
#include "engine/core/threads.h"
#include "engine/sync/dense.h"
#include "layers/weight.h"

namespace ab {
namespace {

/// The value that belongs to a word; config.cpp has already refused words that are not in the list.
template <class T> T meaning(const std::string& word, std::initializer_list<std::pair<const char*, T>> words) {
  for (const auto& [name, value] : words)
    if (word == name) return value;
  throw Bug(fmt::format("bug in abtrain: the word '{}' has no meaning", word));
}

SyncBn sync_bn(const TrainConfig& config) {
  return meaning<SyncBn>(config.sync_bn,
                         {{"off", SyncBn::off}, {"group", SyncBn::group}, {"world", SyncBn::world}});
}

std::int64_t bucket_bytes(const TrainConfig& config) { return std::llround(config.bucket_mb * 1048576.0); }

}  // namespace

TrainAndTest load_data(const TrainConfig& config) {
  if (config.dataset == "imagenet") return load_imagenet(config.data_dir, config.train_samples, config.val_samples);
  ImageSets sets;
  if (config.dataset == "cifar10") sets = load_cifar10(config.data_dir);
  else if (config.dataset == "cifar100") sets = load_cifar100(config.data_dir);
  else sets = load_cifar10(ensure_synthetic_cifar10({}, config.data_dir));
  return {std::make_shared<ImageSet>(first_images(std::move(sets.train), config.train_samples)),
          std::make_shared<ImageSet>(first_images(std::move(sets.test), config.val_samples))};
}

LoaderOptions make_loader_options(const TrainConfig& config, const Comm& world) {
  LoaderOptions options;
  options.batch_size = config.batch_size;
  options.rank = world.rank();
  options.world_size = world.size();
  options.seed = config.seed;
  options.image_size = static_cast<int>(config.image_size);
  options.augmentation = {config.augment, config.rand_augment, config.rand_augment_magnitude, config.random_erasing};
  options.mix = {config.mixup, config.cutmix};
  options.threads = compute_threads();
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
          .zero_init_residual = config.zero_init_residual,
          .seed = config.seed,
          .spectrum = meaning<Spectrum>(config.init, {{"default", Spectrum::drawn},
                                                      {"ortho", Spectrum::ortho},
                                                      {"rand", Spectrum::rand},
                                                      {"sloped", Spectrum::sloped}})};
}

std::int64_t updates_per_epoch(const TrainConfig& config, std::int64_t batches_per_epoch) {
  return (batches_per_epoch + config.accumulate - 1) / config.accumulate;
}

std::int64_t total_steps(const TrainConfig& config, std::int64_t updates_per_epoch) {
  return config.steps > 0 ? config.steps : config.epochs * updates_per_epoch;
}

LrSchedule make_schedule(const TrainConfig& config, std::int64_t updates_per_epoch) {
  const double per_epoch = static_cast<double>(updates_per_epoch);
  LrSchedule schedule;
  schedule.kind = meaning<LrSchedule::Kind>(config.schedule, {{"constant", LrSchedule::Kind::constant},
                                                              {"step", LrSchedule::Kind::step},
                                                              {"cosine", LrSchedule::Kind::cosine}});
  schedule.peak = config.lr;
  schedule.start = schedule.end = config.min_lr;
  schedule.warmup_steps = config.warmup_steps > 0 ? config.warmup_steps : std::llround(config.warmup_epochs * per_epoch);
  schedule.total_steps = total_steps(config, updates_per_epoch);
  schedule.step_length = std::max<std::int64_t>(1, std::llround(config.lr_step_epochs * per_epoch));
  schedule.step_factor = config.lr_step_factor;
  return schedule;
}

std::unique_ptr<Optimizer> make_optimizer(const TrainConfig& config, std::vector<Param*> params) {
  auto optimizer = config.optimizer == "adamw"
                       ? make_adamw(std::move(params), {config.beta1, config.beta2, config.epsilon, config.weight_decay})
                       : make_sgd(std::move(params), {config.momentum, config.weight_decay, config.nesterov});
  optimizer->set_max_grad_norm(config.max_grad_norm);
  optimizer->set_decay_vectors(config.decay_vectors);
  optimizer->set_skip_overflow(precision_named(config.precision) == Precision::fp16);
  return optimizer;
}

std::int64_t rank_multiple(const TrainConfig& config) {
  if (config.ab.rank_multiple > 0) return config.ab.rank_multiple;
  return config.device == "cpu" ? 1 : 8;
}

AbOptions make_ab_options(const TrainConfig& config) {
  const AbConfig& ab = config.ab;
  AbOptions options;
  options.schedule = {ab.warmup_steps, ab.cycle_steps,   ab.full_rank_steps,
                      ab.lr_rebound_steps, ab.cut_at_warmup, ab.paper_schedule};
  options.rank_policy.kind = meaning<RankPolicy::Kind>(ab.rank_policy, {{"sigma-cutoff", RankPolicy::Kind::sigma_cutoff},
                                                                        {"ratio", RankPolicy::Kind::ratio},
                                                                        {"energy", RankPolicy::Kind::energy},
                                                                        {"fixed", RankPolicy::Kind::fixed}});
  options.rank_policy.cutoff = ab.sigma_cutoff;
  options.rank_policy.ratio = ab.ratio;
  options.rank_policy.energy = ab.energy;
  options.rank_policy.fixed = ab.fixed_rank;
  options.rank_policy.multiple = rank_multiple(config);
  options.sync = meaning<SyncMode>(ab.sync, {{"full", SyncMode::full},
                                             {"with-stale", SyncMode::with_stale},
                                             {"only-learned", SyncMode::only_learned},
                                             {"only-b", SyncMode::only_b},
                                             {"tangent", SyncMode::tangent}});
  options.gradient_scope = meaning<GradientScope>(
      ab.setup, {{"groups", GradientScope::group}, {"individual", GradientScope::individual}});
  options.gauge = meaning<Gauge>(ab.gauge, {{"split-sigma", Gauge::split_sigma}, {"orthonormal", Gauge::orthonormal}});
  options.rest = meaning<Rest>(ab.rest, {{"drop", Rest::drop}, {"keep", Rest::keep}});
  options.moments = meaning<MomentCarry>(
      ab.moments,
      {{"project", MomentCarry::project}, {"reset", MomentCarry::reset}, {"truncate", MomentCarry::truncate}});
  options.final_model =
      meaning<FinalModel>(ab.final_model, {{"factors", FinalModel::factors}, {"dense", FinalModel::dense}});
  options.execution = meaning<Execution>(
      ab.execution,
      {{"auto", Execution::automatic}, {"factors", Execution::factors}, {"form-w", Execution::form_w}});
  options.svd = meaning<SvdMethod>(ab.svd, {{"gram", SvdMethod::gram}, {"direct", SvdMethod::direct}});
  options.group_size = ab.group_size;
  options.sync_bn = sync_bn(config);
  options.bucket_bytes = bucket_bytes(config);
  return options;
}

void check_method(const TrainConfig& config, int world_size) {
  ModelSpec spec = make_model_spec(config, 10, config.image_size > 0 ? config.image_size : 32);
  spec.draw = false;  // for its names alone
  mark_always_sync(config.ab.always_sync, *make_model(spec));
  if (config.method != "ab") return;
  const AbOptions options = make_ab_options(config);
  options.validate();
  make_groups(world_size, options.group_size, options.sync == SyncMode::only_b);
}

void mark_always_sync(const std::vector<std::string>& names, Layer& model) {
  if (names.empty()) return;
  const Inventory inventory = inventory_of(model);
  for (const std::string& name : names) {
    const auto found = std::find_if(inventory.params.begin(), inventory.params.end(),
                                    [&](const Param* p) { return p->name == name; });
    if (found != inventory.params.end()) continue;
    std::vector<std::string> known;
    for (const Param* p : inventory.params) known.push_back(p->name);
    const std::string nearest = nearest_name(name, known);
    throw Error(ErrorKind::config, fmt::format("--ab.always-sync: the model has no parameter '{}'; {}", name,
                                               nearest.empty() ? fmt::format("its first is '{}'", known[0])
                                                               : fmt::format("did you mean '{}'?", nearest)));
  }
  const auto is_dense_weight = [&](const Param* p) {
    return std::any_of(inventory.weights.begin(), inventory.weights.end(), [&](Weight* w) { return &w->dense() == p; });
  };
  const auto listed = [&](const Param* p) { return std::find(names.begin(), names.end(), p->name) != names.end(); };
  for (Param* p : inventory.params) {
    if (listed(p)) p->role = ParamRole::always_sync;
    else if (p->role == ParamRole::always_sync) p->role = is_dense_weight(p) ? ParamRole::weight : ParamRole::vector;
  }
}

std::unique_ptr<SyncStrategy> make_strategy(const TrainConfig& config, Layer& model, Comm& world,
                                            const LrSchedule& schedule) {
  if (config.method == "ab") return std::make_unique<AbStrategy>(model, world, make_ab_options(config), schedule);
  const Inventory inventory = inventory_of(model);
  std::vector<Tensor> buffers;
  for (const Buffer& buffer : inventory.buffers) buffers.push_back(buffer.value);
  const bool synchronised = sync_bn(config) != SyncBn::off;
  return std::make_unique<DenseStrategy>(inventory.params, buffers, world, bucket_bytes(config),
                                         synchronised ? inventory.batch_norms : std::vector<BatchNormStats*>{});
}

}  // namespace ab
