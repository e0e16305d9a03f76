// SPDX-License-Identifier: MIT
#include "apps/train/train_record.h"

#include <algorithm>
#include <cmath>

#include "apps/model_file/model_file.h"
#include "apps/train/learner.h"
#include "engine/core/threads.h"
#include "engine/device/device.h"
#include "engine/sync/sync_strategy.h"

namespace ab {
namespace {

std::vector<LayerRank> r_of_layers(Layer& model) {
  std::vector<LayerRank> layers;
  for (const Weight* w : inventory_of(model).weights) layers.push_back({w->name(), w->m(), w->n(), w->r()});
  return layers;
}

std::int64_t parameter_count(Layer& model) {
  std::int64_t count = 0;
  for (const Param* p : inventory_of(model).params) count += p->numel();
  return count;
}

/// Without the sign of a NaN, which means nothing.
const char* name_of_value(double not_finite) { return std::isnan(not_finite) ? "nan" : "infinite"; }

void check_validation(const Evaluation& result, std::int64_t step, const char* whose) {
  AB_CHECK_KIND(numerics, std::isfinite(result.loss),
                "the validation loss{} became {} at step {}: lower --lr, lengthen the warm-up, or set --max-grad-norm",
                whose, name_of_value(result.loss), step);
}

/// Bytes that every rank has sent so far, by phase and in total, known to all ranks.
void gather_traffic(Comm& world, Summary& summary) {
  const std::vector<double> mine = traffic_row(world.ledger());
  std::vector<std::string> phases;
  for (const auto& [phase, entry] : world.ledger().by_phase()) phases.push_back(phase);
  const auto columns = static_cast<std::int64_t>(mine.size());
  const Tensor all({world.size(), columns}, DType::float64);
  world.all_gather(Tensor::from(mine, {columns}), all);
  set_traffic(all.to_doubles(), phases, summary);
}

double sum_of(const std::map<std::string, double>& seconds) {
  double sum = 0;
  for (const auto& [phase, value] : seconds) sum += value;
  return sum;
}

/// NaN where the peak is not known.
double share_of_peak(double flops_per_second, const TrainListener& listener) {
  return listener.peak_flops > 0 && flops_per_second > 0 ? flops_per_second / listener.peak_flops : kNotKnown;
}

/// Why time in collectives is not time lost to communication; empty where it is.
std::string obstacle_to_waiting_times(const Comm& world) {
  const int threads = compute_threads();
  if (!world.waits_on_host()) return "GPUs wait for NCCL, not the host";
  if (threads > compute_cores() + 1e-6)
    return fmt::format("{} thread{} a rank on {:.3g} cores", threads, threads == 1 ? "" : "s", compute_cores());
  return "";
}

}  // namespace

TrainRecord::TrainRecord(const TrainConfig& config, const std::string& method, Comm& world, Layer& model,
                         const TrainListener& listener, std::int64_t total_steps)
    : config_(config),
      world_(world),
      model_(model),
      listener_(listener),
      total_steps_(total_steps),
      stored_full_(stored_numbers(model)) {
  summary_.method = method;
  summary_.model = config.model;
  summary_.dataset = config.dataset;
  summary_.world_size = world.size();
  summary_.seed = config.seed;
  summary_.parameters_full = parameter_count(model);
  if (world.rank() == 0 && !listener.repetition) {
    const Device device = device_of(model);
    if (device.kind == DeviceKind::cuda) energy_ = EnergyMeter::of_gpu(cuda_bus_address(device.index));
    if (device.kind == DeviceKind::cpu) energy_.emplace();
  }
}

void TrainRecord::loss(const Tensor& value, double weight, std::int64_t images, std::int64_t step) {
  unchecked_.push_back({HostRead(value), weight, step});
  check_losses_before(value.device().kind == DeviceKind::cpu ? step + 1 : step);
  interval_images_ += static_cast<double>(images * world_.size());
  images_ += static_cast<double>(images * world_.size());
}

void TrainRecord::check_losses_before(std::int64_t step) {
  for (; !unchecked_.empty() && unchecked_.front().step < step; unchecked_.pop_front()) {
    UncheckedLoss& loss = unchecked_.front();
    const double value = loss.value.item();
    AB_CHECK_KIND(numerics, std::isfinite(value),
                  "the loss became {} at step {} on rank {}: lower --lr, lengthen the warm-up, or set --max-grad-norm",
                  name_of_value(value), loss.step, world_.rank());
    interval_loss_ += loss.weight * value;
    epoch_loss_ += loss.weight * value;
  }
}

void TrainRecord::step(std::int64_t step, std::int64_t epoch, const std::string& phase, double learning_rate,
                       const std::map<std::string, std::int64_t>& images) {
  ++summary_.steps_by_phase[phase];
  ++interval_steps_;
  ++epoch_steps_;
  if (!reports(step)) return;
  check_losses();
  if (energy_) energy_->look();
  const double seconds = interval_.lap(), flops_per_second = interval_flops_ / seconds;
  StepMetrics metrics{step,
                      epoch,
                      phase,
                      mean_over_ranks(interval_loss_ / static_cast<double>(interval_steps_)),
                      learning_rate,
                      interval_images_ / seconds,
                      world_.ledger().total().wire_bytes(),
                      sum_of(world_.ledger().waiting_seconds()) - interval_waiting_,
                      image_waiting_ - interval_image_waiting_,
                      flops_per_second,
                      share_of_peak(flops_per_second, listener_),
                      images};
  for (auto& [name, count] : metrics.images) count -= interval_images_so_far_[name];
  interval_images_so_far_ = images;
  interval_waiting_ += metrics.waiting_seconds;
  interval_image_waiting_ = image_waiting_;
  interval_loss_ = interval_images_ = interval_flops_ = 0;
  interval_steps_ = 0;
  if (listener_.log) listener_.log->write(metrics);
  if (world_.rank() == 0 && listener_.on_step) listener_.on_step(metrics, total_steps_);
}

/// Collective. Not of the method: neither its bytes nor its waiting are counted.
double TrainRecord::mean_over_ranks(double value) {
  const Uncounted uncounted(world_.ledger());
  const Tensor mean = Tensor::from(std::vector<double>{value}, {1});
  world_.all_reduce(mean, ReduceOp::mean);
  return mean.item();
}

void TrainRecord::begin_exchange() {
  exchange_.lap();
  exchange_waiting_ = sum_of(world_.ledger().waiting_seconds());
}

void TrainRecord::end_exchange() {
  compression_seconds_ += exchange_.lap() - (sum_of(world_.ledger().waiting_seconds()) - exchange_waiting_);
}

double TrainRecord::mean_epoch_loss() {
  check_losses();
  const Tensor sums = Tensor::from(std::vector<double>{epoch_loss_, epoch_steps_}, {2});
  AB_ASSERT(static_cast<std::int64_t>(sums.bytes()) == SyncStrategy::kEpochLossBytes);
  world_.all_reduce(sums, ReduceOp::sum);
  return sums.data<double>()[0] / sums.data<double>()[1];
}

void TrainRecord::decision(std::int64_t epoch, std::int64_t step, std::map<std::string, std::int64_t> values) {
  if (listener_.log && !values.empty()) listener_.log->write(DecisionMetrics{epoch, step, std::move(values)});
}

void TrainRecord::split(std::int64_t step, const std::map<std::string, LayerSensitivity>& sensitivity) {
  SplitMetrics metrics{step, {}};
  for (const Weight* w : inventory_of(model_).weights) {
    const auto of_weight = sensitivity.find(w->name());
    if (!w->factored() && of_weight == sensitivity.end()) continue;
    metrics.layers.push_back({w->name(), w->m(), w->n(), w->r()});
    metrics.sensitivity.push_back(of_weight == sensitivity.end() ? LayerSensitivity{} : of_weight->second);
  }
  if (metrics.layers.empty()) return;
  if (listener_.log) listener_.log->write(metrics);
  if (world_.rank() == 0 && listener_.on_split) listener_.on_split(metrics);
}

void TrainRecord::validation(std::int64_t epoch, std::int64_t step, const Evaluation& result) {
  check_validation(result, step, "");
  summary_.final_val_loss = result.loss;
  summary_.final_val_top1 = result.top1;
  summary_.final_val_top5 = result.top5;
  summary_.best_val_top1 = std::max(summary_.best_val_top1, result.top1);
  summary_.val_samples = result.samples;
  const EpochMetrics metrics{epoch, step, result.loss, result.top1, result.top5, result.samples, result.bad};
  if (listener_.log) listener_.log->write(metrics);
  if (world_.rank() == 0 && listener_.on_epoch) listener_.on_epoch(metrics);
}

void TrainRecord::average_validation(const Evaluation& result, std::int64_t step) {
  check_validation(result, step, " of the averaged weights");
  summary_.average_val_top1 = result.top1;
}

Summary TrainRecord::finish(std::int64_t steps, std::int64_t epochs) {
  summary_.steps = steps;
  summary_.epochs = epochs;
  summary_.images_per_second = images_ / summary_.train_seconds;
  summary_.parameters_final = parameter_count(model_);
  summary_.compression_ratio = static_cast<double>(stored_full_) / static_cast<double>(stored_numbers(model_));
  summary_.per_layer = r_of_layers(model_);
  gather_traffic(world_, summary_);
  gather_waiting();
  summary_.image_waiting_seconds = mean_over_ranks(image_waiting_);
  summary_.flops_per_second = flops_ / (summary_.train_seconds - seconds_before_);
  summary_.peak_share = share_of_peak(summary_.flops_per_second, listener_);
  if (energy_) summary_.joules = energy_->look(), summary_.joules_from = energy_->source();
  return summary_;
}

void TrainRecord::gather_waiting() {
  std::string& obstacle = summary_.waiting_not_measured = obstacle_to_waiting_times(world_);
  // Ranks may differ in their threads, and all take part below or none.
  const bool somewhere = mean_over_ranks(obstacle.empty() ? 0 : 1) > 0;
  if (somewhere && obstacle.empty()) obstacle = "other ranks have more threads than cores";
  if (!obstacle.empty()) return;
  const std::map<std::string, LedgerEntry> phases = world_.ledger().by_phase();  // the same on all ranks
  std::vector<double> seconds;
  for (const auto& [phase, traffic] : phases) {
    const auto& now = world_.ledger().waiting_seconds();
    const auto since = now.find(phase);
    seconds.push_back(waiting_before_[phase] + (since == now.end() ? 0 : since->second));
  }
  seconds.push_back(compression_seconds_);
  const Tensor means = Tensor::from(seconds, {static_cast<std::int64_t>(seconds.size())});
  world_.all_reduce(means, ReduceOp::mean);
  std::size_t i = 0;
  for (const auto& [phase, traffic] : phases) summary_.waiting_seconds_by_phase[phase] = means.data<double>()[i++];
  if (config_.device == "cpu") summary_.compression_seconds = means.data<double>()[i];  // a GPU works on meanwhile
}

template <class Record, class Visit> void TrainRecord::for_each_number(Record& r, Visit&& visit) {
  visit("record.images", r.images_);
  visit("record.train_seconds", r.summary_.train_seconds);
  visit("record.compression_seconds", r.compression_seconds_);
  visit("record.image_waiting", r.image_waiting_);
  visit("record.best_val_top1", r.summary_.best_val_top1);
  visit("record.interval_loss", r.interval_loss_);
  visit("record.interval_images", r.interval_images_);
  visit("record.interval_steps", r.interval_steps_);
  visit("record.epoch_loss", r.epoch_loss_);
  visit("record.epoch_steps", r.epoch_steps_);
}

void TrainRecord::save(StateDict& state) const {
  AB_ASSERT(unchecked_.empty());
  for_each_number(*this, [&](const char* name, auto number) { state.put(name, number); });
  state.put("record.interval_seconds", interval_.seconds());
  for (const auto& [phase, steps] : summary_.steps_by_phase) state.put("record.steps_by_phase." + phase, steps);
  std::map<std::string, double> waiting = waiting_before_;
  for (const auto& [phase, seconds] : world_.ledger().waiting_seconds()) waiting[phase] += seconds;
  for (const auto& [phase, seconds] : waiting) state.put("record.waiting_by_phase." + phase, seconds);
}

void TrainRecord::load(const StateDict& saved) {
  for_each_number(*this, [&]<class T>(const char* name, T& number) {
    if constexpr (std::is_same_v<T, double>) number = saved.number(name);
    else number = saved.integer(name);
  });
  interval_image_waiting_ = image_waiting_;
  seconds_before_ = summary_.train_seconds;
  interval_flops_ = kNotKnown;  // some were before
  interval_.lap();
  interval_.advance(saved.number("record.interval_seconds"));
  const std::string steps = "record.steps_by_phase.", waiting = "record.waiting_by_phase.";
  for (const auto& [name, text] : saved.values()) {
    if (name.starts_with(steps)) summary_.steps_by_phase[name.substr(steps.size())] = saved.integer(name);
    if (name.starts_with(waiting)) waiting_before_[name.substr(waiting.size())] = saved.number(name);
  }
}

}  // namespace ab
