// SPDX-License-Identifier: MIT
//
// Time of one training step of a rank while factors train, relative to the step at full rank: with the factors
// run as the engine chooses (two thin operations, or W where that is cheaper), and with W = A·B formed in every
// step, which is what an implementation on top of dense layers does. Ranks that train A, that train B (AB-training) and that
// train both (a late cut). One step of every setting a round, in turn; medians over the rounds. Values are random: only time counts.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <map>
#include <optional>

#include "ablowrank/factorise.h"
#include "ablowrank/split.h"
#include "bench/bench_device.h"
#include "engine/core/precision.h"
#include "engine/core/threads.h"
#include "engine/kernels/elementwise.h"
#include "engine/kernels/random.h"
#include "engine/ops/loss.h"
#include "engine/optim/optimizer.h"
#include "layers/models/models.h"
#include "layers/weight.h"

namespace ab {
namespace {

struct Setting {
  double ratio = 1;  // of r to n
  Weight::Mode mode = Weight::Mode::full;
  Execution execution = Execution::automatic;
  auto operator<=>(const Setting&) const = default;
};

constexpr Weight::Mode kModes[] = {Weight::Mode::train_a, Weight::Mode::train_b, Weight::Mode::train_both};
constexpr Execution kExecutions[] = {Execution::automatic, Execution::form_w};

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

Tensor normal(const Shape& shape, double deviation, std::uint64_t stream, Device device) {
  Tensor t(shape, DType::float32, device);
  fill_normal(t, 0.0, deviation, Philox{7, stream});
  return t;
}

class StepTimer {
 public:
  StepTimer(const ModelSpec& spec, ConvFactors factors, std::int64_t batch, Precision precision, Device device,
            GraphUse graph_use)
      : device_(device),
        precision_(precision),
        model_(make_model(spec, device)),
        weights_(eligible_weights(*model_)),
        optimizer_(make_adamw(inventory_of(*model_).params, {})),
        images_(
            cast(normal({batch, spec.image_size, spec.image_size, 3}, 1.0, 1, device), activation_type(precision))) {
    for (Weight* w : weights_) w->set_conv_factors(factors);
    std::vector<std::int64_t> labels;
    for (std::int64_t i = 0; i < batch; ++i) labels.push_back(i % spec.classes);
    labels_ = Tensor::from(labels, {batch}, device);
    if (graph_use != GraphUse::off) graph_.emplace(device, graph_use);
  }

  double milliseconds(const Setting& setting) {
    bring_into_form(setting);
    for (int i = 0; i < (graph_ ? 2 : 1); ++i) step();  // allocations, just-in-time compilation, a graph
    const auto start = std::chrono::steady_clock::now();
    step();
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  }

 private:
  void bring_into_form(const Setting& setting) {
    const RankPolicy policy{.ratio = setting.ratio};
    for (const Param* p : optimizer_->params()) optimizer_->reset(*p);
    for (Weight* w : weights_) {
      const double deviation = std::sqrt(2.0 / static_cast<double>(w->columns() + w->rows()));
      if (setting.mode == Weight::Mode::full) {
        w->restore(normal(w->shape(), deviation, 2, device_));
        continue;
      }
      const std::int64_t r = policy.choose(std::vector<double>(static_cast<std::size_t>(w->n()), 1.0));
      const double of_factor = std::sqrt(deviation / std::sqrt(static_cast<double>(r)));
      w->factorise(normal({w->rows(), r}, of_factor, 2, device_), normal({r, w->columns()}, of_factor, 3, device_),
                   setting.mode);
      w->set_execution(setting.execution);
    }
    optimizer_->set_params(inventory_of(*model_).params);
  }

  void step() {
    const Tf32Scope tf32(precision_);
    optimizer_->clear_grads();
    if (graph_)
      graph_->run(
          StepKey(*model_, {images_, labels_}), [this] { return forward_backward(); }, false);
    else forward_backward();
    optimizer_->step(1e-6);
    synchronize(device_);
  }

  Tensor forward_backward() {
    const Var loss = softmax_cross_entropy(model_->forward(Var(images_)), labels_);
    backward(loss);
    return loss.value();
  }

  Device device_;
  Precision precision_;
  std::unique_ptr<Layer> model_;
  std::vector<Weight*> weights_;
  std::unique_ptr<Optimizer> optimizer_;
  Tensor images_, labels_;
  std::optional<StepGraph> graph_;
};

std::vector<Setting> settings_of(const std::vector<double>& ratios) {
  std::vector<Setting> settings{{}};
  for (const double ratio : ratios)
    for (const Weight::Mode mode : kModes)
      for (const Execution execution : kExecutions) settings.push_back({ratio, mode, execution});
  return settings;
}

void print_table(const ModelSpec& spec, std::int64_t batch, const std::string& precision, int rounds,
                 const std::vector<double>& ratios, const std::map<Setting, std::vector<double>>& times) {
  const std::vector<double>& dense = times.at({});
  std::printf("%s, %lld images of %lld×%lld, %s, %d threads: %.2f ms at full rank, median of %d rounds\n\n",
              spec.name.c_str(), static_cast<long long>(batch), static_cast<long long>(spec.image_size),
              static_cast<long long>(spec.image_size), precision.c_str(), compute_threads(), median(dense), rounds);
  std::printf(
      "| r / n | A, factors | A, forming W | B, factors | B, forming W | both, factors | both, forming W |\n"
      "|---|---|---|---|---|---|---|\n");
  for (const double ratio : ratios) {
    std::printf("| 1/%.0f |", 1 / ratio);
    for (const Weight::Mode mode : kModes)
      for (const Execution execution : kExecutions) {
        const std::vector<double>& mine = times.at({ratio, mode, execution});
        std::vector<double> relative;
        for (std::size_t i = 0; i < mine.size(); ++i) relative.push_back(mine[i] / dense[i]);
        std::printf(" %.2f |", median(relative));
      }
    std::printf("\n");
  }
}

}  // namespace
}  // namespace ab

int main(int argc, char** argv) {
  using namespace ab;
  ModelSpec spec{.name = "vgg16"};
  std::string device = "cpu", precision = "fp32", graph = "auto", conv_factors = "channel";
  std::int64_t batch = 32;
  int threads = 0, rounds = 3;
  std::vector<double> ratios{0.5, 0.25, 0.125, 0.0625};
  CLI::App app("Time of a training step with factors, relative to full rank");
  app.add_option("--model", spec.name, "model")->capture_default_str();
  app.add_option("--width", spec.width, "multiplies the channels of the model")->capture_default_str();
  app.add_option("--classes", spec.classes, "classes")->capture_default_str();
  app.add_option("--batch", batch, "images per step")->capture_default_str();
  app.add_option("--image-size", spec.image_size, "height and width of the images")->capture_default_str();
  app.add_option("--ratios", ratios, "r / n")->capture_default_str();
  app.add_option("--conv-factors", conv_factors, "of convolutions: channel (k*k and 1*1) or spatial (1*k and k*1)")
      ->check(CLI::IsMember({"channel", "spatial"}))
      ->capture_default_str();
  app.add_option("--precision", precision, "what is computed in")
      ->check(CLI::IsMember(precision_names()))
      ->capture_default_str();
  app.add_option("--threads", threads, "threads (0: all cores)")->capture_default_str();
  app.add_option("--device", device, "cpu or cuda")->check(CLI::IsMember({"cpu", "cuda"}))->capture_default_str();
  app.add_option("--cuda-graph", graph, "launch steps as one graph: auto (on a GPU), on or off")
      ->check(CLI::IsMember({"auto", "on", "off"}))
      ->capture_default_str();
  app.add_option("--rounds", rounds, "rounds")->capture_default_str();
  CLI11_PARSE(app, argc, argv);

  set_compute_threads(threads);
  const Device computes = bench_device(device);
  StepTimer timer(spec, conv_factors == "spatial" ? ConvFactors::spatial : ConvFactors::channel, batch,
                  precision_named(precision), computes, bench_graph_use(graph, computes));
  const std::vector<Setting> settings = settings_of(ratios);
  std::map<Setting, std::vector<double>> times;
  for (int round = 0; round < rounds; ++round)
    for (const Setting& setting : settings) times[setting].push_back(timer.milliseconds(setting));
  print_table(spec, batch, precision, rounds, ratios, times);
}
