// SPDX-License-Identifier: MIT
#include "apps/train_loop.h"

#include <chrono>
#include <cmath>

#include "apps/build_run.h"
#include "data/loader.h"
#include "engine/ops/loss.h"
#include "engine/sync/replica_check.h"
#include "layers/models/models.h"
#include "layers/weight.h"

namespace ab {
namespace {

class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }
  double lap() {
    const double elapsed = seconds();
    start_ = std::chrono::steady_clock::now();
    return elapsed;
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

std::vector<LayerRank> layer_ranks(Layer& model) {
  std::vector<LayerRank> ranks;
  for (const Weight* w : inventory_of(model).weights) ranks.push_back({w->name(), w->m(), w->n(), w->r()});
  return ranks;
}

std::int64_t parameter_count(Layer& model) {
  std::int64_t count = 0;
  for (const Param* p : inventory_of(model).params) count += p->numel();
  return count;
}

/// What every rank has sent so far, by phase and in total, known to all ranks.
void gather_traffic(Comm& world, Summary& summary) {
  const std::map<std::string, LedgerEntry> phases = world.ledger().by_phase();
  const LedgerEntry total = world.ledger().total();
  std::vector<double> mine{total.wire_bytes(), total.inter_node_wire_bytes};
  for (const auto& [phase, entry] : phases) mine.push_back(entry.wire_bytes());

  const auto columns = static_cast<std::int64_t>(mine.size());
  const Tensor all({world.size(), columns}, DType::float64);
  world.all_gather(Tensor::from(mine, {columns}), all);
  const std::vector<double> values = all.to_doubles();
  const auto mean_of_column = [&](std::size_t column) {
    double sum = 0;
    for (std::size_t i = column; i < values.size(); i += mine.size()) sum += values[i];
    return sum / world.size();
  };
  for (std::size_t i = 0; i < values.size(); i += mine.size()) summary.wire_bytes_by_rank.push_back(values[i]);
  summary.wire_bytes_per_rank_total = mean_of_column(0);
  summary.inter_node_bytes_per_rank_total = mean_of_column(1);
  std::size_t column = 2;
  for (const auto& [phase, entry] : phases) summary.wire_bytes_per_rank_by_phase[phase] = mean_of_column(column++);
}

/// The training loop of one rank, with what lives as long as the run.
class Trainer {
 public:
  Trainer(const TrainConfig& config, Comm& world, const TrainAndTest& data, const TrainListener& listener)
      : config_(config), world_(world), data_(data), listener_(listener),
        model_(make_model(config.model, data.train.classes, config.seed)),
        loader_(data.train, loader_options(config, world)) {
    mark_always_sync(config.ab.always_sync, *model_);
    schedule_ = make_schedule(config, loader_.batches_per_epoch());
    total_steps_ = total_steps(config, loader_.batches_per_epoch());
    optimizer_ = make_optimizer(config, inventory_of(*model_).params);
    strategy_ = make_strategy(config, *model_, world, schedule_);
    summary_.method = config.method;
    summary_.model = config.model;
    summary_.dataset = config.dataset;
    summary_.world_size = world.size();
    summary_.seed = config.seed;
    summary_.parameters_full = parameter_count(*model_);
  }

  TrainResult run() {
    TrainState state{0, *optimizer_};
    strategy_->start(state);
    report_split(state);
    for (std::int64_t epoch = 0; state.step < total_steps_; ++epoch) {
      Stopwatch clock;
      train_epoch(epoch, state);
      const bool last = state.step == total_steps_;
      world_.ledger().set_phase("evaluation");
      if (last) strategy_->finish(state);
      summary_.train_seconds += clock.seconds();
      summary_.epochs = epoch + 1;
      if (last || (config_.eval_every > 0 && (epoch + 1) % config_.eval_every == 0)) validate(epoch, state, last);
    }
    summary_.steps = state.step;
    summary_.images_per_second =
        static_cast<double>(state.step * config_.batch_size * world_.size()) / summary_.train_seconds;
    summary_.parameters_final = parameter_count(*model_);
    summary_.compression_ratio =
        static_cast<double>(summary_.parameters_full) / static_cast<double>(summary_.parameters_final);
    summary_.per_layer = layer_ranks(*model_);
    gather_traffic(world_, summary_);
    check_replicas(world_, model_tensors(), "at the end");
    return {std::move(summary_), std::move(model_)};
  }

 private:
  static LoaderOptions loader_options(const TrainConfig& config, const Comm& world) {
    LoaderOptions options;
    options.batch_size = config.batch_size;
    options.rank = world.rank();
    options.world_size = world.size();
    options.seed = config.seed;
    options.augment = config.augment;
    return options;
  }

  std::vector<Tensor> model_tensors() {
    const Inventory inventory = inventory_of(*model_);
    std::vector<Tensor> tensors;
    for (const Param* p : inventory.params) tensors.push_back(p->value.value());
    for (const Buffer& buffer : inventory.buffers) tensors.push_back(buffer.value);
    return tensors;
  }

  void train_epoch(std::int64_t epoch, TrainState& state) {
    loader_.start_epoch(epoch);
    while (state.step < total_steps_) {
      const std::optional<Batch> batch = loader_.next();
      if (!batch) return;
      const std::string phase = strategy_->phase();
      world_.ledger().set_phase(phase);
      const double learning_rate = strategy_->learning_rate(schedule_.at(state.step), state.step);

      optimizer_->clear_grads();
      const Var loss = softmax_cross_entropy(model_->forward(Var(batch->images)), batch->labels,
                                             static_cast<float>(config_.label_smoothing));
      note_loss(loss.value().item(), state.step);
      backward(loss);
      strategy_->finish_grads(state);
      optimizer_->step(learning_rate);

      ++state.step;
      ++summary_.steps_by_phase[phase];
      strategy_->after_step(state);
      if (strategy_->phase() != phase) report_split(state);
      report_step(epoch, state, phase, learning_rate);
    }
  }

  void note_loss(double loss, std::int64_t step) {
    AB_CHECK_KIND(numerics, std::isfinite(loss),
                  "the loss became {} at step {} on rank {}: lower --lr, lengthen the warm-up, or set --max-grad-norm",
                  loss, step, world_.rank());
    interval_loss_ += loss;
    ++interval_steps_;
  }

  void report_step(std::int64_t epoch, const TrainState& state, const std::string& phase, double learning_rate) {
    if (state.step % config_.log_every != 0 && state.step != total_steps_) return;
    const double images = static_cast<double>(interval_steps_ * config_.batch_size * world_.size());
    const StepMetrics metrics{state.step, epoch, phase, interval_loss_ / static_cast<double>(interval_steps_),
                              learning_rate, images / interval_.lap(), world_.ledger().total().wire_bytes()};
    interval_loss_ = 0;
    interval_steps_ = 0;
    if (world_.rank() == 0 && listener_.on_step) listener_.on_step(metrics, total_steps_);
  }

  void report_split(const TrainState& state) {
    if (world_.rank() != 0 || !listener_.on_split) return;
    SplitMetrics metrics{state.step, {}};
    for (const Weight* w : inventory_of(*model_).weights)
      if (w->factored()) metrics.layers.push_back({w->name(), w->m(), w->n(), w->r()});
    if (!metrics.layers.empty()) listener_.on_split(metrics);
  }

  void validate(std::int64_t epoch, TrainState& state, bool last) {
    world_.ledger().set_phase("evaluation");
    if (!last) strategy_->begin_evaluation(state);
    const Evaluation result = evaluate(*model_, data_.test, world_);
    if (!last) strategy_->end_evaluation(state);
    interval_.lap();
    summary_.final_val_loss = result.loss;
    summary_.final_val_top1 = result.top1;
    summary_.final_val_top5 = result.top5;
    summary_.best_val_top1 = std::max(summary_.best_val_top1, result.top1);
    summary_.val_samples = result.samples;
    if (world_.rank() == 0 && listener_.on_epoch)
      listener_.on_epoch({epoch, state.step, result.loss, result.top1, result.top5});
  }

  const TrainConfig& config_;
  Comm& world_;
  const TrainAndTest& data_;
  const TrainListener& listener_;
  std::unique_ptr<Layer> model_;
  Loader loader_;
  LrSchedule schedule_;
  std::int64_t total_steps_ = 0;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<SyncStrategy> strategy_;
  Summary summary_;

  Stopwatch interval_;
  double interval_loss_ = 0;
  std::int64_t interval_steps_ = 0;
};

}  // namespace

TrainResult train(const TrainConfig& config, Comm& world, const TrainAndTest& data, const TrainListener& listener) {
  return Trainer(config, world, data, listener).run();
}

}  // namespace ab
