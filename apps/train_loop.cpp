// SPDX-License-Identifier: MIT
#include "apps/train_loop.h"

#include "apps/build_run.h"
#include "apps/run_device.h"
#include "apps/run_folder.h"
#include "apps/run_transport.h"
#include "apps/stop_request.h"
#include "apps/train_step.h"
#include "data/batch_feed.h"
#include "engine/core/plan_choice.h"
#include "engine/core/random.h"
#include "engine/core/threads.h"
#include "engine/optim/loss_scale.h"
#include "engine/sync/replica_check.h"
#include "layers/model_state.h"
#include "layers/weight_average.h"

namespace ab {
namespace {

/// The training loop of one rank, with what lives as long as the run.
class Trainer {
 public:
  Trainer(const TrainConfig& config, Comm& world, const TrainAndTest& data, const TrainListener& listener,
          std::unique_ptr<Layer> model)
      : config_(config), world_(world), data_(data), listener_(listener), device_(choose_device(config.device)),
        model_(model ? std::move(model)
                     : make_model(make_model_spec(config, data.train->classes, data.train->height), device_)),
        feed_(*data.train, loader_options(config, world), device_, activation_type(precision_named(config.precision))),
        updates_per_epoch_(updates_per_epoch(config, feed_.batches_per_epoch())),
        total_steps_(total_steps(config, updates_per_epoch_)),
        schedule_(make_schedule(config, updates_per_epoch_)),
        record_(config, world, *model_, listener, total_steps_),
        stop_(world),
        precision_(precision_named(config.precision)),
        step_(*model_, device_, precision_, config.label_smoothing,
              choose_graph_use(config, choose_transport(config, find_launcher()))) {
    mark_always_sync(config.ab.always_sync, *model_);
    optimizer_ = make_optimizer(config, inventory_of(*model_).params);
    if (precision_ == Precision::fp16) loss_scale_.emplace();
    strategy_ = make_strategy(config, *model_, world, schedule_);
    if (config.ema_decay > 0) {
      ModelSpec spec = make_model_spec(config, data.train->classes, data.train->height);
      spec.draw = false;
      average_ = std::make_unique<WeightAverage>(make_model(spec, device_), *model_, config.ema_decay);
    }
  }

  TrainResult run(std::optional<Checkpoint> checkpoint) {
    TrainResult result;
    TrainState state{0, *optimizer_};
    if (checkpoint) {
      load(checkpoint->state, state);
      checkpoint.reset();  // it would double the memory for the rest of the run
    } else {
      strategy_->start(state);
      record_.split(0);
    }
    for (;; ++epoch_, batch_ = 0) {
      clock_.lap();
      const bool trained = train_epoch(state);
      check_numbers();
      const bool last = state.step == total_steps_;
      if (trained && last) finish(state);
      record_.add_seconds(clock_.lap());
      const bool due = last || (config_.eval_every > 0 && (epoch_ + 1) % config_.eval_every == 0);
      if (!trained || (due && !validate(state, last))) {
        save(state);
        result.stopped = true;
        return result;
      }
      if (last) break;
    }
    result.summary = record_.finish(state.step, epoch_ + 1);
    check_replicas(world_, model_tensors(), "at the end");
    if (average_) result.average = std::move(*average_).release(*model_);
    result.model = std::move(model_);
    return result;
  }

 private:
  static LoaderOptions loader_options(const TrainConfig& config, const Comm& world) {
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

  std::vector<Tensor> buffers() {
    std::vector<Tensor> tensors;
    for (const Buffer& buffer : inventory_of(*model_).buffers) tensors.push_back(buffer.value);
    return tensors;
  }

  static std::vector<Tensor> copies(const std::vector<Tensor>& tensors) {
    std::vector<Tensor> result;
    for (const Tensor& tensor : tensors) result.push_back(tensor.clone());
    return result;
  }

  std::vector<Tensor> model_tensors() {
    std::vector<Tensor> tensors = buffers();
    for (const Param* p : inventory_of(*model_).params) tensors.push_back(p->value.value());
    return tensors;
  }

  /// Trains on from batch_; false when all ranks agreed to stop.
  bool train_epoch(TrainState& state) {
    feed_.start_epoch(epoch_, batch_);
    while (state.step < total_steps_ && batch_ < feed_.batches_per_epoch()) {
      world_.ledger().set_phase(strategy_->phase());
      stop_.ask();
      train_step(state);
      if (stop_.agreed() && state.step < total_steps_) return false;
      if (config_.save_every > 0 && state.step % config_.save_every == 0) try_to_save(state);
    }
    return true;
  }

  /// The next batch of the epoch, on the device and of the type of activations.
  Batch next_batch() {
    std::optional<Batch> batch = feed_.next();
    AB_ASSERT(batch);
    return std::move(*batch);
  }

  /// One update, from as many micro-batches as config says and the epoch still has.
  void train_step(TrainState& state) {
    const std::string phase = strategy_->phase();
    const double learning_rate = strategy_->learning_rate(schedule_.at(state.step), state.step);
    const std::int64_t micro_batches = std::min(config_.accumulate, feed_.batches_per_epoch() - batch_);
    const double share = 1.0 / static_cast<double>(micro_batches);

    optimizer_->clear_grads();
    for (std::int64_t i = 0; i < micro_batches; ++i, ++batch_) {
      const Batch batch = next_batch();
      const bool last = i + 1 == micro_batches;
      strategy_->set_gradient_exchange(last);
      const PlanChoiceScope plans(config_.autotune ? PlanChoice::timed : plan_choice());
      const Tensor loss = step_.run(batch, {.noise_seed = noise_seed(state.step, i),
                                            .share = share,
                                            .loss_scale = loss_scale_ ? loss_scale_->value() : 1.0,
                                            .last = last});
      feed_.prefetch();
      record_.loss(loss, share, batch.count(), state.step);
    }
    strategy_->finish_grads(state);
    optimizer_->step(learning_rate);
    if (loss_scale_) loss_scale_->update(optimizer_->read_grad_norm());

    ++state.step;
    if (strategy_->has_transition(state.step) || record_.reports(state.step)) check_numbers();
    strategy_->after_step(state);
    if (average_) strategy_->replicas_agree() ? average_->update(*model_) : average_->wait();
    if (strategy_->phase() != phase) record_.split(state.step);
    record_.step(state.step, epoch_, phase, learning_rate);
  }

  /// Throws Error(numerics) unless all losses and gradients so far are finite. A step does not ask, as a GPU would have
  /// to wait until it has been answered.
  void check_numbers() {
    record_.check_losses();
    optimizer_->check_grad_norm();
  }

  /// Of what a forward pass draws (dropout): another one for every micro-batch of every rank, and the same again
  /// after a resume.
  std::uint64_t noise_seed(std::int64_t step, std::int64_t micro_batch) const {
    constexpr std::uint64_t kNoiseStream = std::uint64_t{0x6e6f6973} << 32;  // "nois", then the rank
    const Philox random{config_.seed, kNoiseStream + static_cast<std::uint64_t>(world_.rank())};
    const Philox::Block block = random.block(static_cast<std::uint64_t>(step * config_.accumulate + micro_batch));
    return std::uint64_t{block.v[0]} << 32 | block.v[1];
  }

  /// The final model, on all ranks.
  void finish(TrainState& state) {
    world_.ledger().set_phase("evaluation");
    const bool waited = !strategy_->replicas_agree();
    strategy_->finish(state);
    if (average_ && waited) average_->catch_up(*model_);
  }

  /// False when all ranks agreed to stop: then it counts as not begun, and the resumed run does it again.
  bool validate(TrainState& state, bool last) {
    const Ledger ledger_before = world_.ledger();
    const std::vector<Tensor> buffers_before = last ? std::vector<Tensor>{} : copies(buffers());
    world_.ledger().set_phase("evaluation");
    StopAgreement* const stop = last ? nullptr : &stop_;
    if (!last) strategy_->begin_evaluation(state);
    const auto measure = [&](Layer& model) {
      return evaluate(model, *data_.test, world_, config_.image_size, precision_, stop);
    };
    const std::optional<Evaluation> of_model = measure(*model_);
    std::optional<Evaluation> of_average;
    if (of_model && average_) of_average = measure(average_->model(*model_));
    if (!last) strategy_->end_evaluation(state);
    if (!of_model || (average_ && !of_average)) {
      world_.ledger() = ledger_before;
      for (std::size_t i = 0; i < buffers_before.size(); ++i) buffers()[i].copy_from(buffers_before[i]);
      return false;
    }
    record_.validation(epoch_, state.step, *of_model);
    if (of_average) record_.average_validation(*of_average);
    return true;
  }

  void save(const TrainState& state) {
    check_numbers();
    record_.add_seconds(clock_.lap());
    StateDict dict;
    dict.put("images", static_cast<std::int64_t>(data_.fingerprint()));
    dict.put("threads", std::int64_t{compute_threads()});
    dict.put("step", state.step);
    dict.put("epoch", epoch_);
    dict.put("batch", batch_);
    dict.put("ledger", world_.ledger().to_text());
    save_model(*model_, dict);
    optimizer_->save(dict);
    strategy_->save(dict);
    if (average_) average_->save(dict);
    if (loss_scale_) loss_scale_->save(dict);
    record_.save(dict);
    if (world_.rank() == 0 && listener_.on_save) listener_.on_save(dict);
    const Ledger of_training = world_.ledger();
    save_checkpoint(in_folder(config_.out, kCheckpointFolder), state.step, dict, config_.keep_checkpoints, world_);
    world_.ledger() = of_training;
  }

  /// A full disk costs a checkpoint, not the run; the older one stays.
  void try_to_save(const TrainState& state) {
    try {
      save(state);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::checkpoint) throw;
      if (world_.rank() == 0) fmt::print(stderr, "warning: {}; training goes on\n", error.what());
    }
  }

  void load(const StateDict& dict, TrainState& state) {
    AB_CHECK_KIND(data, dict.integer("images") == static_cast<std::int64_t>(data_.fingerprint()),
                  "the checkpoint was saved with other images; give the data set that the run began with");
    if (world_.rank() == 0 && dict.integer("threads") != compute_threads())
      fmt::print(stderr, "warning: {} threads a rank instead of {}: the run goes on, but not to the last bit as if it "
                 "had never stopped\n", compute_threads(), dict.integer("threads"));
    state.step = dict.integer("step");
    epoch_ = dict.integer("epoch");
    batch_ = dict.integer("batch");
    load_model(*model_, dict);
    optimizer_->load(dict, all_params(*model_), device_);
    strategy_->load(dict, state);
    if (average_) average_->load(dict);
    if (loss_scale_) loss_scale_->load(dict);
    record_.load(dict);
    world_.ledger().from_text(dict.text("ledger"));
  }

  const TrainConfig& config_;
  Comm& world_;
  const TrainAndTest& data_;
  const TrainListener& listener_;
  Device device_;
  std::unique_ptr<Layer> model_;
  BatchFeed feed_;
  std::int64_t updates_per_epoch_, total_steps_;
  LrSchedule schedule_;
  TrainRecord record_;
  StopAgreement stop_;
  Precision precision_;
  TrainStep step_;
  std::optional<LossScale> loss_scale_;  // of fp16
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<SyncStrategy> strategy_;
  std::unique_ptr<WeightAverage> average_;

  Stopwatch clock_;  // of training, since it was last asked

  // Where training is: batches of this epoch that have been used.
  std::int64_t epoch_ = 0, batch_ = 0;
};

}  // namespace

TrainResult train(const TrainConfig& config, Comm& world, const TrainAndTest& data, const TrainListener& listener,
                  std::optional<Checkpoint> checkpoint, std::unique_ptr<Layer> model) {
  const PlanChoiceScope plans(config.deterministic ? PlanChoice::deterministic : PlanChoice::heuristic);
  return Trainer(config, world, data, listener, std::move(model)).run(std::move(checkpoint));
}

}  // namespace ab
