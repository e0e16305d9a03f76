// SPDX-License-Identifier: MIT
//
// Time of one training step, printed as one line of JSON with the keys of its peer bench/peers/torch_train.py.
// Images and labels are held in memory, so that loading does not count.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

#include "bench/bench_device.h"
#include "engine/core/plan_choice.h"
#include "engine/core/precision.h"
#include "engine/core/threads.h"
#include "engine/kernels/elementwise.h"
#include "engine/kernels/random.h"
#include "engine/ops/loss.h"
#include "engine/optim/optimizer.h"
#include "layers/models/models.h"

namespace {

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  std::string name = "vgg16_bn_cifar", precision = "fp32", device_word = "cpu", graph_word = "auto";
  std::int64_t batch = 128, image_size = 32;
  int threads = 0, steps = 10, warmup = 3;
  bool autotune = false;
  CLI::App app("Time of one training step");
  app.add_option("--model", name, "model to train")->capture_default_str();
  app.add_option("--batch", batch, "images per step")->capture_default_str();
  app.add_option("--image-size", image_size, "height and width of the images")->capture_default_str();
  app.add_option("--precision", precision, "of activations: fp32, tf32, bf16 or fp16")->capture_default_str();
  app.add_option("--threads", threads, "threads (0: all cores)")->capture_default_str();
  app.add_option("--device", device_word, "cpu or cuda")->check(CLI::IsMember({"cpu", "cuda"}))->capture_default_str();
  app.add_flag("--autotune", autotune, "on a GPU, time the algorithms of its libraries and take the fastest");
  app.add_option("--cuda-graph", graph_word, "launch steps as one graph: auto (on a GPU), on or off")
      ->check(CLI::IsMember({"auto", "on", "off"}))
      ->capture_default_str();
  app.add_option("--steps", steps, "timed steps")->capture_default_str();
  app.add_option("--warmup", warmup, "untimed steps before")->capture_default_str();
  CLI11_PARSE(app, argc, argv);

  using namespace ab;
  const Tf32Scope tf32(precision_named(precision));
  const PlanChoiceScope plans(autotune ? PlanChoice::timed : PlanChoice::heuristic);
  set_compute_threads(threads);
  const Device device = bench_device(device_word);
  const std::unique_ptr<Layer> model = make_model({.name = name, .image_size = image_size}, device);
  const auto optimizer = make_sgd(inventory_of(*model).params, {.momentum = 0.9, .weight_decay = 5e-4});
  const Tensor images({batch, image_size, image_size, 3}, DType::float32, device);
  fill_normal(images, 0.0f, 1.0f, Philox{1, 0});
  const Tensor input = cast(images, activation_type(precision_named(precision)));
  std::vector<std::int64_t> labels(static_cast<std::size_t>(batch));
  for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<std::int64_t>(i % 10);
  const Tensor label_tensor = Tensor::from(labels, {batch}, device);

  const GraphUse graph_use = bench_graph_use(graph_word, device);
  std::optional<StepGraph> graph;
  if (graph_use != GraphUse::off) graph.emplace(device, graph_use);
  const auto forward_backward = [&] {
    const Var value = softmax_cross_entropy(model->forward(Var(input)), label_tensor);
    backward(value);
    return value.value();
  };

  std::vector<double> ms;
  double loss = 0;
  for (int step = 0; step < warmup + steps; ++step) {
    const auto start = std::chrono::steady_clock::now();
    optimizer->clear_grads();
    const Tensor value = graph ? graph->run(StepKey(*model, {input, label_tensor}), forward_backward, false)
                               : forward_backward();
    optimizer->step(0.01);
    loss = value.item();  // on a GPU this waits for the step
    const std::chrono::duration<double, std::milli> elapsed = std::chrono::steady_clock::now() - start;
    if (step >= warmup) ms.push_back(elapsed.count());
  }
  const nlohmann::json line = {{"tool", "abtrain"},
                               {"model", name},
                               {"batch", batch},
                               {"image_size", image_size},
                               {"precision", precision},
                               {"device", device_word},
                               {"autotune", autotune},
                               {"cuda_graph", graph.has_value()},
                               {"threads", compute_threads()},
                               {"steps", steps},
                               {"ms_per_step_median", median(ms)},
                               {"ms_per_step_min", *std::min_element(ms.begin(), ms.end())},
                               {"images_per_second_median", 1000.0 * static_cast<double>(batch) / median(ms)},
                               {"loss", loss}};
  std::printf("%s\n", line.dump().c_str());
}
