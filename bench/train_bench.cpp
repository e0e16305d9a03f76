// SPDX-License-Identifier: MIT
//
// Time of one training step, with the flags, the output and the measure of its peer bench/peers/torch_train.py.
// Images and labels are held in memory, so that loading does not count.
//
// Prints a line of JSON that describes the run once it is warmed up, and then one for each turn: a turn is --steps
// steps with one wait at their end. With --turns it waits for a line on its input before each turn, so that
// bench/peers/compare_train.py can let several programs take turns on one machine.

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "bench/bench_device.h"
#include "engine/backend/plan_choice.h"
#include "engine/core/precision.h"
#include "engine/core/threads.h"
#include "engine/kernels/elementwise.h"
#include "engine/kernels/random.h"
#include "engine/ops/loss.h"
#include "engine/optim/optimizer.h"
#include "layers/models/models.h"

namespace ab {
namespace {

/// A model, its optimizer and one batch of random images.
class Training {
 public:
  Training(const ModelSpec& spec, std::int64_t batch, Precision precision, Device device, GraphUse graph_use)
      : model_(make_model(spec, device)),
        optimizer_(make_sgd(inventory_of(*model_).params, {.momentum = 0.9, .weight_decay = 5e-4})) {
    const Tensor images({batch, spec.image_size, spec.image_size, 3}, DType::float32, device);
    fill_normal(images, 0.0f, 1.0f, Philox{1, 0});
    images_ = cast(images, activation_type(precision));
    std::vector<std::int64_t> labels(static_cast<std::size_t>(batch));
    for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<std::int64_t>(i) % spec.classes;
    labels_ = Tensor::from(labels, {batch}, device);
    if (graph_use != GraphUse::off) graph_.emplace(device, graph_use);
  }

  /// Waits for the last step alone, and returns its loss.
  double run(int steps) {
    Tensor loss;
    for (int step = 0; step < steps; ++step) {
      optimizer_->clear_grads();
      loss = graph_ ? graph_->run(
                          StepKey(*model_, {images_, labels_}), [this] { return forward_backward(); }, false)
                    : forward_backward();
      optimizer_->step(0.01);
    }
    return loss.defined() ? loss.item() : 0;
  }

 private:
  Tensor forward_backward() {
    const Var loss = softmax_cross_entropy(model_->forward(Var(images_)), labels_);
    backward(loss);
    return loss.value();
  }

  std::unique_ptr<Layer> model_;
  std::unique_ptr<Optimizer> optimizer_;
  Tensor images_, labels_;
  std::optional<StepGraph> graph_;
};

void print(const nlohmann::json& line) { std::cout << line.dump() << std::endl; }

}  // namespace
}  // namespace ab

int main(int argc, char** argv) {
  using namespace ab;
  ModelSpec spec{.name = "vgg16_bn_cifar"};
  std::string precision = "fp32", device_word = "cpu", graph_word = "auto";
  std::int64_t batch = 128;
  int threads = 0, steps = 10, warmup = 3;
  bool autotune = false, turns = false;
  CLI::App app("Time of one training step");
  app.add_option("--model", spec.name, "model to train")->capture_default_str();
  app.add_option("--width", spec.width, "multiplies the channels of the model")->capture_default_str();
  app.add_option("--classes", spec.classes, "outputs of the model")->capture_default_str();
  app.add_option("--batch", batch, "images per step")->capture_default_str();
  app.add_option("--image-size", spec.image_size, "height and width of the images")->capture_default_str();
  app.add_option("--precision", precision, "what is computed in")
      ->check(CLI::IsMember(precision_names()))
      ->capture_default_str();
  app.add_option("--threads", threads, "threads (0: all cores)")->capture_default_str();
  app.add_option("--device", device_word, "cpu or cuda")->check(CLI::IsMember({"cpu", "cuda"}))->capture_default_str();
  app.add_flag("--autotune", autotune, "on a GPU, time the algorithms of its libraries and take the fastest");
  app.add_option("--cuda-graph", graph_word, "launch steps as one graph: auto (on a GPU), on or off")
      ->check(CLI::IsMember({"auto", "on", "off"}))
      ->capture_default_str();
  app.add_option("--steps", steps, "steps of a turn")->check(CLI::Range(1, 1000000))->capture_default_str();
  app.add_option("--warmup", warmup, "untimed steps before")->capture_default_str();
  app.add_flag("--turns", turns, "wait for a line of input before each turn; end with the input");
  CLI11_PARSE(app, argc, argv);

  const Tf32Scope tf32(precision_named(precision));
  const PlanChoiceScope plans(autotune ? PlanChoice::timed : PlanChoice::heuristic);
  set_compute_threads(threads);
  const Device device = bench_device(device_word);
  const GraphUse graph_use = bench_graph_use(graph_word, device);
  Training training(spec, batch, precision_named(precision), device, graph_use);
  training.run(warmup);
  print({{"tool", "abtrain"},
         {"model", spec.name},
         {"classes", spec.classes},
         {"batch", batch},
         {"image_size", spec.image_size},
         {"precision", precision},
         {"device", device_word},
         {"threads", compute_threads()},
         {"autotune", autotune},
         {"cuda_graph", graph_use != GraphUse::off},
         {"steps", steps}});

  std::string line;
  while (!turns || std::getline(std::cin, line)) {
    const auto start = std::chrono::steady_clock::now();
    const double loss = training.run(steps);
    const std::chrono::duration<double, std::milli> elapsed = std::chrono::steady_clock::now() - start;
    const double ms = elapsed.count() / steps;
    print({{"ms_per_step", ms}, {"images_per_second", 1000.0 * static_cast<double>(batch) / ms}, {"loss", loss}});
    if (!turns) break;
  }
}
