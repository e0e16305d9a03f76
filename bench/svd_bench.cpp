// SPDX-License-Identifier: MIT
//
// Time of one split: the singular value decompositions of all weights of a model that AB-training splits, on one
// rank. The same matrices in PyTorch: bench/peers/torch_svd.py, with the flags and the output of this program.
//
// One line of JSON: seconds of each round (the first one, which sets the libraries up, is not counted), and the
// largest error of a reconstruction, max |W − U Σ Vᵀ| / max |W|.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "ablowrank/factorise.h"
#include "ablowrank/split.h"
#include "bench/bench_device.h"
#include "engine/backend/backend.h"
#include "engine/core/threads.h"
#include "layers/models/models.h"

namespace ab {
namespace {

double largest(const Tensor& t) {
  double value = 0;
  for (const double v : t.to_doubles()) value = std::max(value, std::abs(v));
  return value;
}

/// The error of the decomposition at full rank, relative to the largest entry of the weight.
double reconstruction_error(const Tensor& weight, const LowRank& low_rank) {
  return largest(rest_of(weight, low_rank)) / largest(weight);
}

}  // namespace
}  // namespace ab

int main(int argc, char** argv) {
  using namespace ab;
  ModelSpec spec{.name = "resnet50", .classes = 1000, .image_size = 224};
  std::string device_word = "cpu";
  int threads = 0, rounds = 3;
  CLI::App app("Time of the singular value decompositions of all weights of a model");
  app.add_option("--model", spec.name, "model")->capture_default_str();
  app.add_option("--image-size", spec.image_size, "height and width of its images")->capture_default_str();
  app.add_option("--width", spec.width, "multiplies its channels")->capture_default_str();
  app.add_option("--threads", threads, "threads (0: all cores)")->capture_default_str();
  app.add_option("--device", device_word, "cpu or cuda")->check(CLI::IsMember({"cpu", "cuda"}))->capture_default_str();
  app.add_option("--rounds", rounds, "timed rounds")->check(CLI::Range(1, 1000))->capture_default_str();
  CLI11_PARSE(app, argc, argv);

  set_compute_threads(threads);
  const Device device = bench_device(device_word);
  const std::unique_ptr<Layer> model = make_model(spec, device);
  const std::vector<Weight*> weights = eligible_weights(*model);

  double error = 0;
  for (Weight* weight : weights) {
    const Tensor w = weight->matrix();
    error = std::max(error, reconstruction_error(w, decompose(w, nullptr)));
  }
  std::vector<double> seconds;
  for (int round = 0; round < rounds; ++round) {
    synchronize(device);
    const auto start = std::chrono::steady_clock::now();
    for (Weight* weight : weights) decompose(weight->matrix(), nullptr);
    synchronize(device);
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  const nlohmann::json line = {{"tool", "abtrain"},     {"model", spec.name},           {"matrices", weights.size()},
                               {"device", device_word}, {"threads", compute_threads()}, {"seconds", seconds},
                               {"error", error}};
  std::printf("%s\n", line.dump().c_str());
}
