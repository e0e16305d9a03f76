// SPDX-License-Identifier: MIT
//
// How long the steps of a run take on a network, with more ranks than there are cores: ranks train as `abtrain train`
// does, by the same loop, strategies and collectives over the virtual network of --network, but in place of forward and
// backward they sleep, so that no rank takes another one's processor. Backward takes the part of --step-ms that it takes of
// forward and backward of one rank alone, recorded first: it sleeps until each gradient was there, and gives a drawn one of
// its shape. Forward sleeps for the rest of the step, in which compression counts: what ranks really compute in between is
// taken off it.
// All times, latencies too, are --dilation times as long, and bandwidths as much lower, so that what is really computed
// counts little; figures are divided by it again. Ranks r of --method late-cut cannot come from a loss here: give
// --late-cut.rank-policy ratio. Prints a line of JSON for each phase.
//   replay_bench --config FILE --step-ms MS [--dilation N] [--any-setting of abtrain train VALUE]…

#include <chrono>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <thread>

#include "apps/settings/config.h"
#include "apps/settings/hardware.h"
#include "apps/train/build_run.h"
#include "apps/train/train_loop.h"
#include "engine/core/threads.h"
#include "engine/kernels/random.h"
#include "engine/ops/loss.h"
#include "layers/weight.h"

namespace ab {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;
Clock::duration ticks(double seconds) { return std::chrono::duration_cast<Clock::duration>(Seconds(seconds)); }

/// When the gradient of each parameter is complete, by its name: after backward has begun, in parts of forward and backward.
using Profile = std::map<std::string, double>;

/// The last of three steps of one rank, without a network.
Profile record_backward(const ModelSpec& spec, std::int64_t batch) {
  const auto model = make_model(spec, {});
  Tensor images({batch, spec.image_size, spec.image_size, 3}, DType::float32);
  fill_normal(images, 0.0f, 1.0f, Philox{1, 0});
  const Tensor labels = Tensor::from(std::vector<std::int64_t>(static_cast<std::size_t>(batch)), {batch});
  Profile profile;
  Clock::time_point start;
  double step_seconds = 0;
  const std::vector<Param*> params = inventory_of(*model).params;
  for (Param* const param : params)
    param->value.set_grad_ready_hook([&, param] { profile[param->name] = Seconds(Clock::now() - start).count(); });
  for (int step = 0; step < 3; ++step) {
    const Clock::time_point begin = Clock::now();
    const Var loss = softmax_cross_entropy(model->forward(Var(images)), labels);
    start = Clock::now();
    backward(loss);
    step_seconds = Seconds(Clock::now() - begin).count();
    for (Param* const param : params) param->value.clear_grad();
  }
  for (auto& [name, part] : profile) part /= step_seconds;
  return profile;
}

struct ReplayTimes {
  Profile backward;  ///< here in seconds
  double step = 0;   ///< seconds
};

/// A step as it was seen.
struct ReplayedStep {
  std::string phase;
  Clock::time_point begin;
};

/// The parts of a real model, whose forward and backward passes sleep.
class ReplayedModel : public Layer {
 public:
  ReplayedModel(std::unique_ptr<Layer> model, std::int64_t classes, const ReplayTimes& times, Comm& world)
      : model_(std::move(model)), classes_(classes), times_(times), world_(world) {}

  void list(Inventory& inventory) override { model_->list(inventory); }

  Var forward(const Var& x) override {
    const Tensor zeros = Tensor::zeros({x.shape()[0], classes_}, DType::float32);
    if (!recording()) return Var(zeros);
    sleep_before_backward();
    steps_.push_back({world_.ledger().phase(), Clock::now()});
    observe_nothing();
    backward_begin_ = Clock::now();
    const Tensor one = Tensor::zeros({1}, DType::float32);  // nobody reads what flows between parameters
    Var y(one);
    for (Param* const param : inventory_of(*model_).params)
      y = record("replayed", one, {param->value, y}, [this, param, one](const Tensor&) -> Gradients {
        return {gradient_when_due(*param), one};
      });
    return record("replayed", zeros, {y}, [one](const Tensor&) -> Gradients { return {one}; });
  }

  const std::vector<ReplayedStep>& steps() const { return steps_; }

 private:
  double waited() const {
    double seconds = 0;
    for (const auto& [phase, of_phase] : world_.ledger().waiting_seconds()) seconds += of_phase;
    return seconds;
  }

  /// Seconds of a step without its backward pass, less those that have really been computed since that.
  void sleep_before_backward() {
    const double longest = std::ranges::max(times_.backward | std::views::values);
    double computed = 0;
    if (!steps_.empty()) computed = Seconds(Clock::now() - backward_end_).count() - (waited() - waited_at_end_);
    std::this_thread::sleep_for(ticks(times_.step - longest - computed));
  }

  /// A cut asks what was observed before it: here one drawn position, as its ranks r are given.
  void observe_nothing() {
    for (const Weight* const weight : inventory_of(*model_).weights) {
      if (!weight->observed()) continue;
      const Tensor drawn(Shape{1, 1, weight->rows()}, DType::float32);
      fill_normal(drawn, 0.0f, 1.0f, Philox{static_cast<std::uint64_t>(steps_.size()), 0});
      backward(record("observed", Tensor::zeros({1}, DType::float32), {weight->observe(Var(drawn, true))},
                      [drawn](const Tensor&) -> Gradients { return {drawn}; }));
    }
  }

  Tensor gradient_when_due(const Param& param) {
    const auto recorded =
        std::ranges::find_if(times_.backward, [&](const auto& entry) { return param.name.starts_with(entry.first); });
    AB_CHECK(recorded != times_.backward.end(), "the recorded pass has no {}", param.name);
    std::this_thread::sleep_until(backward_begin_ + ticks(recorded->second));
    backward_end_ = Clock::now();
    waited_at_end_ = waited();
    Tensor& drawn = gradients_[param.name];
    if (!drawn.defined()) {
      drawn = Tensor(param.value.shape(), DType::float32);
      fill_normal(drawn, 0.0f, 1e-3f,
                  Philox{static_cast<std::uint64_t>(world_.rank()), static_cast<std::uint64_t>(gradients_.size())});
    }
    return drawn.clone();
  }

  std::unique_ptr<Layer> model_;
  std::int64_t classes_;
  const ReplayTimes& times_;
  Comm& world_;
  std::map<std::string, Tensor> gradients_;
  std::vector<ReplayedStep> steps_;
  Clock::time_point backward_begin_, backward_end_;
  double waited_at_end_ = 0;
};

/// Steps of a phase but the last, as a transition may follow that; the last step of a run is followed by its end.
void print_phases(const std::vector<ReplayedStep>& steps, double dilation) {
  std::map<std::string, std::vector<double>> seconds;
  for (std::size_t i = 0; i + 1 < steps.size(); ++i)
    if (steps[i].phase == steps[i + 1].phase)
      seconds[steps[i].phase].push_back(Seconds(steps[i + 1].begin - steps[i].begin).count() / dilation);
  for (const auto& [phase, of_phase] : seconds)
    std::cout << nlohmann::json{{"phase", phase},
                                {"steps", of_phase.size()},
                                {"ms_per_step", 1000 * std::accumulate(of_phase.begin(), of_phase.end(), 0.0) /
                                                    static_cast<double>(of_phase.size())}}
                     .dump()
              << std::endl;
}

struct Given {
  std::vector<FlagValue> settings;
  std::string config;
  double step_ms = 0, dilation = 10;
};

Given read_arguments(int argc, char** argv) {
  Given given;
  for (int i = 1; i < argc; i += 2) {
    const std::string flag = argv[i];
    AB_CHECK(flag.starts_with("--") && i + 1 < argc, "{}: every argument is --name value", flag);
    const std::string value = argv[i + 1];
    if (flag == "--config") given.config = value;
    else if (flag == "--step-ms") given.step_ms = std::stod(value);
    else if (flag == "--dilation") given.dilation = std::stod(value);
    else {
      std::string key = flag.substr(2);
      std::ranges::replace(key, '-', '_');
      given.settings.emplace_back(std::move(key), value);
    }
  }
  AB_CHECK(given.step_ms > 0, "--step-ms is missing");
  return given;
}

void replay(const Given& given) {
  const TrainConfig config = resolve_train_config(given.settings, given.config);
  const TrainAndTest data = load_data(config);
  const ModelSpec spec = make_model_spec(config, data.train->classes, data.train->height);
  set_compute_threads(1, config.ranks);
  ReplayTimes times{record_backward(spec, config.batch_size), given.step_ms / 1000 * given.dilation};
  for (auto& [name, seconds] : times.backward) seconds *= times.step;

  CommOptions options{.ranks_per_node = config.ranks_per_node,
                      .timeout = std::chrono::seconds(config.timeout_s),
                      .wiring = run_wiring(config)};
  for (NetworkShape::From& part : options.wiring.network.parts)
    for (Link* const link :
         {&part.links.inter_node, &part.links.intra_node, &part.assumed.inter_node, &part.assumed.intra_node})
      *link = {link->latency * given.dilation, link->bandwidth / given.dilation};
  run_thread_ranks(config.ranks, options, [&](Comm& world) {
    set_compute_threads(1, world.size());
    auto model = std::make_unique<ReplayedModel>(make_model(spec, {}), spec.classes, times, world);
    const ReplayedModel& replayed = *model;
    const TrainResult result = train(config, world, data, {}, {}, std::move(model));
    if (world.rank() == 0) print_phases(replayed.steps(), given.dilation);
  });
}

}  // namespace
}  // namespace ab

int main(int argc, char** argv) {
  try {
    ab::replay(ab::read_arguments(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
