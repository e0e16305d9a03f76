#pragma once
// SPDX-License-Identifier: MIT
//
// The record of a run: lines of metrics while it goes, and the summary at its end.

#include <chrono>
#include <deque>
#include <functional>
#include <limits>
#include <optional>

#include "apps/settings/train_config.h"
#include "apps/train/energy.h"
#include "apps/train/evaluate.h"
#include "apps/train/summary.h"
#include "engine/comm/comm.h"
#include "engine/core/tensor.h"
#include "engine/io/checkpoint.h"
#include "engine/io/metrics_log.h"
#include "engine/io/state_dict.h"
#include "layers/layer.h"

namespace ab {

class Repetition;

/// Of a checkpoint: how long metrics.jsonl was.
inline constexpr const char* kLogBytes = "metrics.bytes";

/// Listeners of the loop, called on rank 0 only. Any of them may be empty.
struct TrainListener {
  std::function<void(const Checkpoint&)> on_resume;                           ///< the run goes on from there
  std::function<void(const StepMetrics&, std::int64_t total_steps)> on_step;  ///< every log_every steps
  std::function<void(const EpochMetrics&)> on_epoch;
  std::function<void(const SplitMetrics&)> on_split;
  MetricsLog* log = nullptr;         ///< of rank 0: where metrics are written too
  double peak_flops = 0;             ///< operations a second that a rank computes at most; 0: not known
  Repetition* repetition = nullptr;  ///< of a rehearsal: what it leaves out
};

class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }
  double lap() {
    const double elapsed = seconds();
    start_ = std::chrono::steady_clock::now();
    return elapsed;
  }
  /// As if it had been started that much earlier.
  void advance(double seconds) {
    start_ -= std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds));
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

class TrainRecord {
 public:
  TrainRecord(const TrainConfig& config, const std::string& method, Comm& world, Layer& model,
              const TrainListener& listener, std::int64_t total_steps);

  /// The loss [1] of a micro-batch of `images` and its weight in the step's. Throws Error(numerics) when it is not finite;
  /// on a GPU, which must not wait, that of `step` is looked at when the next step tells its own.
  void loss(const Tensor& value, double weight, std::int64_t images, std::int64_t step);
  /// Looks at all losses so far: before they are reported or saved, and before weights are made into others.
  void check_losses() { check_losses_before(std::numeric_limits<std::int64_t>::max()); }
  /// Whether step() writes a line of metrics.
  bool reports(std::int64_t step) const { return step % config_.log_every == 0 || step == total_steps_; }
  /// An update is done; `step` counts it. Collective where it reports, for the mean loss of all ranks. `images`: of images_so_far().
  void step(std::int64_t step, std::int64_t epoch, const std::string& phase, double learning_rate,
            const std::map<std::string, std::int64_t>& images = {});
  void step_left_out(const std::string& phase) { ++summary_.steps_by_phase[phase]; }
  void start_epoch() { epoch_loss_ = epoch_steps_ = 0; }
  /// The mean loss of the updates of this epoch, over all ranks. Collective.
  double mean_epoch_loss();
  void decision(std::int64_t epoch, std::int64_t step, std::map<std::string, std::int64_t> values);
  /// Weights have been factorised.
  void split(std::int64_t step, const std::map<std::string, LayerSensitivity>& sensitivity);
  /// Around validations, whose time is not that of steps.
  void begin_evaluation() { interval_seconds_ = interval_.seconds(); }
  void end_evaluation() { interval_.lap(), interval_.advance(interval_seconds_); }
  /// Both throw Error(numerics) when the loss is not finite.
  void validation(std::int64_t epoch, std::int64_t step, const Evaluation& result);
  void average_validation(const Evaluation& result, std::int64_t step);
  void views_validation(const Evaluation& result) { summary_.views_val_top1 = result.top1; }
  void waited_for_images(double seconds) { image_waiting_ += seconds; }
  /// Operations of a micro-batch of this rank.
  void computed(std::int64_t flops) {
    flops_ += static_cast<double>(flops), interval_flops_ += static_cast<double>(flops);
  }
  /// Around the exchange of a step's gradients: what is not waiting in it counts as compression.
  void begin_exchange();
  void end_exchange();
  /// Time of training, validation not included.
  void add_seconds(double seconds) { summary_.train_seconds += seconds; }
  /// Collective.
  Summary finish(std::int64_t steps, std::int64_t epochs);

  void save(StateDict& state) const;
  void load(const StateDict& saved);

 private:
  /// Calls visit(name, member) for the numbers that a checkpoint keeps.
  template <class Record, class Visit> static void for_each_number(Record& r, Visit&& visit);
  void check_losses_before(std::int64_t step);
  double mean_over_ranks(double value);
  void gather_waiting();

  const TrainConfig& config_;
  Comm& world_;
  Layer& model_;
  const TrainListener& listener_;
  std::int64_t total_steps_, stored_full_;
  Summary summary_;
  std::optional<EnergyMeter> energy_;      // of rank 0
  double flops_ = 0, seconds_before_ = 0;  // of this rank since the run was started or resumed, and seconds before
  double images_ = 0;                      // seen by all ranks
  std::map<std::string, double> waiting_before_;  // by phase, before the run was resumed
  Stopwatch exchange_;
  double exchange_waiting_ = 0;  // all waiting when it began
  double compression_seconds_ = 0;
  double image_waiting_ = 0,
         interval_image_waiting_ = 0;  // seconds of this rank: in all, and before the last line of metrics

  struct UncheckedLoss {
    HostRead value;
    double weight;
    std::int64_t step;
  };
  std::deque<UncheckedLoss> unchecked_;

  double epoch_loss_ = 0, epoch_steps_ = 0;  // of this rank, in this epoch

  // Since the last line of metrics.
  Stopwatch interval_;
  double interval_seconds_ = 0;  // when an evaluation began
  double interval_loss_ = 0, interval_images_ = 0, interval_flops_ = 0;
  double interval_waiting_ = 0;  // all waiting at the last line
  std::map<std::string, std::int64_t> interval_images_so_far_;
  std::int64_t interval_steps_ = 0;
};

}  // namespace ab
