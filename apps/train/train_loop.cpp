// SPDX-License-Identifier: MIT
#include "apps/train/train_loop.h"

#include <set>
#include <sstream>

#include "apps/settings/hardware.h"
#include "apps/train/build_run.h"
#include "apps/train/run_folder.h"
#include "apps/train/run_images.h"
#include "apps/train/run_transport.h"
#include "apps/train/stop_request.h"
#include "apps/train/train_step.h"
#include "data/batch_feed.h"
#include "engine/backend/plan_choice.h"
#include "engine/comm/texts.h"
#include "engine/core/memory.h"
#include "engine/core/random.h"
#include "engine/core/say.h"
#include "engine/core/threads.h"
#include "engine/sync/replica_strategy.h"
#include "layers/model_state.h"

namespace ab {
namespace {

/// The training loop of one rank, with what lives as long as the run.
class Trainer {
 public:
  Trainer(const TrainConfig& config, const Method& method, Comm& world, const TrainAndTest& data,
          const TrainListener& listener, std::unique_ptr<Layer> model, bool goes_on)
      : config_(config),
        world_(world),
        data_(data),
        images_(data),
        listener_(listener),
        bad_images_(config.on_bad_image == OnBadImage::skip && data.train->reads_files()
                        ? std::make_shared<BadImages>(config.max_bad_images)
                        : nullptr),
        feed_(*data.train, make_loader_options(config, world, *data.train, bad_images_),
              model ? device_of(*model) : choose_device(config.device),
              activation_type(precision_named(config.precision))),
        schedule_(make_schedule(config, steps_per_epoch(config, data.train->count, world.size()))),
        total_steps_(schedule_.total_steps),
        learner_(config, method, world, *data.train, schedule_, std::move(model), goes_on),
        strategy_(*learner_.strategy),
        record_(config, method.name, world, *learner_.model, listener, total_steps_),
        stop_(world, config.accumulate, listener.repetition != nullptr),
        step_(*learner_.model, learner_.device, learner_.precision, config.label_smoothing, choose_graph_use(config)) {
    if (world.rank() != 0 || config.out.empty()) return;
    requests_.emplace(config.out);
    stop_.listen_to([this] { return requests_->look(); });
  }

  TrainResult run(std::optional<Checkpoint> checkpoint) {
    TrainResult result;
    TrainState state{0, *learner_.optimizer};
    if (checkpoint) {
      load(checkpoint->state, state);
      checkpoint.reset();  // it would double the memory for the rest of the run
    } else {
      strategy_.start(state);
      record_.split(0, state.sensitivity);
    }
    feed_.start_epoch(epoch_, batch_);
    for (;; ++epoch_, batch_ = 0, epoch_told_ = false) {
      clock_.lap();
      const bool trained = train_epoch(state);
      check_numbers();
      const bool last = state.step == total_steps_;
      if (last) save_trained(state);
      if (trained && strategy_.follows_epochs() && !epoch_told_) {
        world_.ledger().set_phase(strategy_.phase());
        strategy_.on_epoch_end(state, record_.mean_epoch_loss());
        record_.decision(epoch_, state.step, strategy_.decision());
        epoch_told_ = true;  // and not again by the run that goes on after a stop in the validation below
      }
      if (trained && last) finish(state);
      record_.add_seconds(clock_.lap());
      if (const std::string failure = trained ? gather_bad_images() : ""; !failure.empty())
        end_by_image(failure, state, last);
      const bool due = last || (config_.eval_every > 0 && (epoch_ + 1) % config_.eval_every == 0);
      if (!trained) end_by_missing_image(state);
      else if (!last) feed_.start_epoch(epoch_ + 1);  // whose first batches are prepared during the validation
      if (!trained || (due && !validate(state, last))) {
        if (!last) save(state, config_.keep_checkpoints);
        result.stopped = true;
        return result;
      }
      if (last) break;
    }
    result.summary = record_.finish(state.step, epoch_ + 1);
    count_images(data_, result.summary);
    result.summary.bad_images = std::ssize(bad_of_all_);
    for (const std::string& name : bad_of_all_)
      if (result.summary.bad_image_names.size() < 100) result.summary.bad_image_names.push_back(name);
    check_replicas(world_, learner_.tensors(), "at the end", learner_.names());
    if (learner_.average) result.average = std::move(*learner_.average).release(*learner_.model);
    result.model = std::move(learner_.model);
    return result;
  }

 private:
  static std::vector<Tensor> copies(const std::vector<Tensor>& tensors) {
    std::vector<Tensor> result;
    for (const Tensor& tensor : tensors) result.push_back(tensor.clone());
    return result;
  }

  /// Trains on from batch_; false when all ranks agreed to stop.
  bool train_epoch(TrainState& state) {
    if (batch_ == 0) record_.start_epoch();
    bool begins = true;
    for (; state.step < total_steps_ && batch_ < feed_.batches_per_epoch(); begins = false) {
      if (is_left_out(state)) continue;
      look_ahead(state.step);
      const std::optional<Ledger> before = asks_before_step(begins) ? std::optional(world_.ledger()) : std::nullopt;
      world_.ledger().set_phase(strategy_.phase());
      world_.ledger().begin_step(state.step);
      stop_.ask(!missing_.empty());
      if (before && stop_.agreed_by_now()) {
        world_.ledger() = *before;  // the run that goes on asks again
        return false;
      }
      train_step_or_explain(state);
      if (listener_.repetition) listener_.repetition->ends(learner_);
      if (stop_.agreed() && state.step < total_steps_) return false;
      const bool due = config_.save_every > 0 && state.step % config_.save_every == 0;
      const bool wished = stop_.save_agreed() && state.step < total_steps_;  // the last step is saved anyway
      if (wished || due) try_to_save(state, config_.keep_checkpoints);
    }
    return true;
  }

  std::int64_t micro_batches() const { return std::min(config_.accumulate, feed_.batches_per_epoch() - batch_); }

  /// Whether a rehearsal leaves out the next update: then it has been passed over.
  bool is_left_out(TrainState& state) {
    if (!listener_.repetition) return false;
    const Repetition::Part part{strategy_.phase(), strategy_.step_kind(state.step), micro_batches(),
                                feed_.image_side()};
    if (!listener_.repetition->leaves_out(part, !strategy_.has_transition(state.step + 1), learner_)) return false;
    batch_ += part.micro_batches;
    ++state.step;
    strategy_.pass(state);
    record_.step_left_out(part.phase);
    return true;
  }

  /// Meets a batch that cannot be had before the step that needs it: early enough for all ranks to agree to stop before that
  /// step, from the state that all earlier ones have left. Images in memory are always to be had.
  void look_ahead(std::int64_t step) {
    if (!missing_.empty() || !data_.train->reads_files()) return;
    try {
      const std::int64_t updates = std::min(look_ahead_updates(config_, world_.size()), total_steps_ - step);
      const Stopwatch waiting;
      feed_.look_ahead(updates * config_.accumulate, stop_requested);
      record_.waited_for_images(waiting.seconds());
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::data) throw;
      missing_ = error.what();
    }
  }

  /// Whether an image that is missing must be agreed on before the step begins: in later ones of a pass the ranks have it
  /// from the questions before.
  bool asks_before_step(bool begins) const { return data_.train->reads_files() && (begins || world_.size() == 1); }

  /// Ends a run that stops for want of an image of a rank. Collective.
  void end_by_missing_image(const TrainState& state) {
    const std::string failure = [&] {
      const Uncounted uncounted(world_.ledger());
      return first_failure(world_, missing_);
    }();
    if (!failure.empty()) end_by_image(failure, state, false);
  }

  /// Tells all ranks the bad images of each, so that none warns of those again; why they end the run, or nothing. Collective,
  /// not of the method.
  std::string gather_bad_images() {
    if (!bad_images_) return "";
    const Uncounted uncounted(world_.ledger());
    for (const std::string& of_rank : gather_texts(world_, fmt::format("{}", fmt::join(bad_images_->names(), "\n")))) {
      std::istringstream names(of_rank);
      for (std::string name; std::getline(names, name);) bad_of_all_.insert(name);
    }
    try {
      bad_images_->add_all(bad_of_all_);
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  }

  /// The next batch of the epoch, on the device and of the type of activations.
  Batch next_batch() {
    const Stopwatch waiting;
    std::optional<Batch> batch = feed_.next();
    record_.waited_for_images(waiting.seconds());
    AB_ASSERT(batch);
    return std::move(*batch);
  }

  void train_step_or_explain(TrainState& state) {
    try {
      train_step(state);
    } catch (const OutOfMemory& error) {
      if (!step_.has_graph_pool()) throw;
      throw OutOfMemory(fmt::format("{}; or give --cuda-graph off, as a graph keeps its memory", error.what()));
    }
  }

  /// Gives back memory that steps keep and a transition or an evaluation has no use for.
  void release_step() {
    learner_.optimizer->clear_grads();
    step_.drop_graph();
  }

  /// One update, from as many micro-batches as config says and the epoch still has.
  void train_step(TrainState& state) {
    const std::string phase = strategy_.phase();
    const double learning_rate = strategy_.learning_rate(schedule_.at(state.step), state.step);
    const std::int64_t micro_batches = this->micro_batches();
    const double share = 1.0 / static_cast<double>(micro_batches);

    learner_.optimizer->clear_grads();
    for (std::int64_t i = 0; i < micro_batches; ++i, ++batch_) {
      const Batch batch = next_batch();
      const bool last = i + 1 == micro_batches;
      strategy_.set_gradient_exchange(last);
      const PlanChoiceScope plans(config_.autotune ? PlanChoice::timed : plan_choice());
      const Tensor loss = step_.run(batch, {.noise_seed = noise_seed(state.step, i),
                                            .share = share,
                                            .loss_scale = learner_.loss_scale ? learner_.loss_scale->value() : 1.0,
                                            .last = last,
                                            .overlapped = overlaps_exchange()});
      feed_.prefetch();
      record_.loss(loss, share, batch.count(), state.step);
      record_.computed(step_.flops());
    }
    record_.begin_exchange();
    strategy_.finish_grads(state);
    record_.end_exchange();
    learner_.update(state, learning_rate);

    const bool has_transition = strategy_.has_transition(state.step);
    if (has_transition || record_.reports(state.step)) check_numbers();
    if (has_transition) release_step();
    strategy_.after_step(state);
    learner_.update_average();
    if (strategy_.phase() != phase) record_.split(state.step, state.sensitivity);
    record_.step(state.step, epoch_, phase, learning_rate, images_so_far(data_));
  }

  /// Whether gradients are to travel while backward computes: worth more than a graph, unless that is asked for.
  bool overlaps_exchange() const {
    return world_.runs_beside_computation() && strategy_.exchanges_in_backward() && config_.cuda_graph != "on";
  }

  /// Throws Error(numerics) unless all losses and gradients so far are finite. A step does not ask, as a GPU would have
  /// to wait until it has been answered.
  void check_numbers() {
    record_.check_losses();
    learner_.optimizer->check_grad_norm();
  }

  /// The seed of what a forward pass draws (dropout): different for every micro-batch of every rank, and the same again
  /// after a resume.
  std::uint64_t noise_seed(std::int64_t step, std::int64_t micro_batch) const {
    constexpr std::uint64_t kNoiseStream = std::uint64_t{0x6e6f6973} << 32;  // "nois", then the rank
    const Philox random{config_.seed, kNoiseStream + static_cast<std::uint64_t>(world_.rank())};
    const Philox::Block block = random.block(static_cast<std::uint64_t>(step * config_.accumulate + micro_batch));
    return std::uint64_t{block.v[0]} << 32 | block.v[1];
  }

  /// The final model, on all ranks. It is neither validated nor published unless it is finite.
  void finish(TrainState& state) {
    world_.ledger().set_phase("evaluation");
    release_step();
    const bool waited = !strategy_.replicas_agree();
    strategy_.finish(state);
    if (learner_.average && waited) learner_.average->catch_up(*learner_.model);
    strategy_.leave(state);
    StateDict models;
    save_model(*learner_.model, models);
    if (learner_.average) learner_.average->save(models);
    check_finite(models);
  }

  /// False when all ranks agreed to stop: then it counts as not begun, and the resumed run does it again.
  bool validate(TrainState& state, bool last) {
    if (!listener_.repetition) return validate_now(state, last);
    const Repetition::Part part{"evaluation in " + strategy_.phase(), strategy_.replicas_agree()};
    if (listener_.repetition->leaves_out(part, !last, learner_)) return true;
    const bool validated = validate_now(state, last);
    listener_.repetition->ends(learner_);
    return validated;
  }

  bool validate_now(TrainState& state, bool last) {
    check_equal_parameters(state.step);
    const Ledger ledger_before = world_.ledger();
    const std::vector<Tensor> buffers_before = last ? std::vector<Tensor>{} : copies(learner_.buffers());
    world_.ledger().set_phase("evaluation");
    release_step();
    record_.begin_evaluation();
    // A run whose last state could not be saved is not stopped now: the model would be lost.
    StopAgreement* const stop = !last || saved_step_ == total_steps_ ? &stop_ : nullptr;
    if (last) stop_.stop_counting();
    if (!last) strategy_.begin_evaluation(state);
    const auto measure = [&](Layer& model, bool views = false) {
      return evaluate(model, *data_.test, world_,
                      {.image_size = config_.image_size,
                       .framing = config_.framing,
                       .precision = learner_.precision,
                       .views = views,
                       .stop = stop,
                       .stall_timeout_seconds = stall_timeout_seconds(config_),
                       .loader_threads = loader_threads(config_),
                       .bad_images = bad_images_});
    };
    const bool with_views = last && config_.val_views;
    std::optional<Evaluation> of_model, of_average, of_views;
    std::string failure;
    try {
      of_model = measure(*learner_.model);
      Layer* validated = learner_.model.get();
      if (of_model && learner_.average) {
        validated = &learner_.average->model(*learner_.model);
        of_average = measure(*validated);
      }
      if (of_model && with_views && (of_average || !learner_.average)) of_views = measure(*validated, true);
      failure = gather_bad_images();
    } catch (const EvaluationError& error) {
      failure = error.what();
    }
    if (!last) strategy_.end_evaluation(state);
    record_.end_evaluation();
    clock_.lap();  // its time is not that of training
    if (!failure.empty() || !of_model || (learner_.average && !of_average) || (with_views && !of_views)) {
      world_.ledger() = ledger_before;
      for (std::size_t i = 0; i < buffers_before.size(); ++i) learner_.buffers()[i].copy_from(buffers_before[i]);
      if (!failure.empty()) end_by_image(failure, state, last);
      return false;
    }
    record_.validation(epoch_, state.step, *of_model);
    if (of_average) record_.average_validation(*of_average, state.step);
    if (of_views) record_.views_validation(*of_views);
    return true;
  }

  /// Saves before an image ends the run, so that no training is lost. After the last step it is saved already.
  [[noreturn]] void end_by_image(const std::string& failure, const TrainState& state, bool last) {
    if (!last && state.step > 0 && saved_step_ != state.step && !config_.out.empty())
      try_to_save(state, config_.keep_checkpoints, "");
    AB_CHECK_KIND(data, saved_step_ == state.step, "{}", failure);
    throw Error(ErrorKind::data,
                fmt::format("{}; step {} is saved: go on with --resume when that is mended", failure, state.step));
  }

  /// Parameters that have drifted apart are neither validated nor saved. Not of the method: its bytes are not counted, and a
  /// rehearsal leaves it out.
  void check_equal_parameters(std::int64_t step) {
    if (!strategy_.replicas_agree() || listener_.repetition) return;
    const Uncounted uncounted(world_.ledger());
    check_replicas(world_, learner_.parameters(), fmt::format("after step {}", step), learner_.names());
  }

  void save(const TrainState& state, int keep) {
    check_numbers();
    check_equal_parameters(state.step);
    record_.add_seconds(clock_.lap());
    StateDict dict;
    images_.save(dict);
    dict.put("threads", std::int64_t{compute_threads()});
    dict.put("step", state.step);
    dict.put("epoch", epoch_);
    dict.put("batch", batch_);
    dict.put("nodes", std::int64_t{nodes_apart(config_, world_)});
    dict.put("epoch_told", std::int64_t{epoch_told_});
    dict.put("ledger", world_.ledger().to_text());
    learner_.save(dict);
    record_.save(dict);
    if (listener_.log) dict.put(kLogBytes, listener_.log->synced_bytes());
    const Uncounted uncounted(world_.ledger());
    save_checkpoint(in_folder(config_.out, kCheckpointFolder), state.step, dict, keep, world_);
    saved_step_ = state.step;
  }

  /// A full disk costs a checkpoint, not the run; the older one stays.
  void try_to_save(const TrainState& state, int keep, const char* then = "; training goes on") {
    try {
      save(state, keep);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::checkpoint) throw;
      if (world_.rank() == 0) say(stderr, "warning: {}{}\n", error.what(), then);
    }
  }

  /// The last validation, and what the model goes through before it, begin from a state that is on disk. This
  /// checkpoint is one more than the run was told to keep (remove_last_checkpoint() in run_folder.h).
  void save_trained(const TrainState& state) {
    if (saved_step_ == state.step || config_.out.empty()) return;
    try_to_save(state, config_.keep_checkpoints + 1);
    clock_.lap();  // its time is not that of training
  }

  void load(const StateDict& dict, TrainState& state) {
    const std::string other_images = images_.compare(dict);
    if (world_.rank() == 0 && !other_images.empty()) say(stderr, "warning: {}\n", other_images);
    if (world_.rank() == 0 && dict.integer("threads") != compute_threads())
      say(stderr,
          "warning: {} threads a rank instead of {}: the run goes on, but not to the last bit as if it had "
          "never stopped\n",
          compute_threads(), dict.integer("threads"));
    const std::int64_t nodes = nodes_apart(config_, world_), before = dict.integer("nodes");
    AB_CHECK(
        nodes == before,
        "with --cache-share node every node trains on images of its own; the run began on {} of them and now has {}: start it on as "
        "many as before",
        before, nodes);
    saved_step_ = state.step = dict.integer("step");
    epoch_ = dict.integer("epoch");
    batch_ = dict.integer("batch");
    epoch_told_ = dict.integer("epoch_told") != 0;
    learner_.load(dict, state);
    record_.load(dict);
    world_.ledger().from_text(dict.text("ledger"));
    world_.ledger().begin_step(std::max<std::int64_t>(0, state.step - 1));  // over whose network an epoch ends
  }

  const TrainConfig& config_;
  Comm& world_;
  const TrainAndTest& data_;
  const RunImages images_;
  const TrainListener& listener_;
  const std::shared_ptr<BadImages> bad_images_;  // null: one ends the run
  BatchFeed feed_;
  LrSchedule schedule_;
  std::int64_t total_steps_;
  Learner learner_;
  SyncStrategy& strategy_;  // the learner's
  TrainRecord record_;
  StopAgreement stop_;
  std::optional<RequestFiles> requests_;  // of rank 0, in a run folder
  TrainStep step_;

  Stopwatch clock_;  // of training, since it was last asked

  // Where training is: batches of this epoch that have been used.
  std::int64_t epoch_ = 0, batch_ = 0;
  bool epoch_told_ = false;           // the strategy has heard of its end
  std::set<std::string> bad_of_all_;  // names that all ranks know
  std::string missing_;               // why an image of this rank cannot be had
  std::int64_t saved_step_ = -1;      // of the newest checkpoint
};

}  // namespace

TrainResult train(const TrainConfig& config, Comm& world, const TrainAndTest& data, const TrainListener& listener,
                  std::optional<Checkpoint> checkpoint, std::unique_ptr<Layer> model, const Method* method) {
  const PlanChoiceScope plans(config.deterministic ? PlanChoice::deterministic : PlanChoice::heuristic);
  return Trainer(config, method ? *method : find_method(config.method), world, data, listener, std::move(model),
                 checkpoint.has_value())
      .run(std::move(checkpoint));
}

}  // namespace ab
