// SPDX-License-Identifier: MIT
//
// How far what a cut is expected to cost (ablowrank/loss_metric.h) is from what it costs: each weight of a dense model is cut
// by itself, to the least r whose expected rise of the loss is at most --rise, and the loss of training images, with the batch
// statistics of training, is measured before and after, on other images than were observed. Prints a line for each weight.
//   cut_loss_bench --model-file RUN --data-dir DIR [--conv-factors spatial] [--rise 0.02] [--observed 80] [--measured 80]
// --observed, --measured: batches of 32

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <numeric>

#include "ablowrank/cut.h"
#include "ablowrank/loss_metric.h"
#include "apps/model_file/model_file.h"
#include "apps/train/run_folder.h"
#include "data/batch_feed.h"
#include "data/datasets.h"
#include "engine/core/threads.h"
#include "engine/kernels/elementwise.h"
#include "engine/ops/loss.h"

namespace ab {
namespace {

constexpr std::int64_t kBatch = 32;

double mean_loss(Layer& model, const std::vector<Batch>& batches) {
  const NoGradScope no_grad;
  double sum = 0;
  for (const Batch& batch : batches)
    sum += softmax_cross_entropy(model.forward(Var(batch.images)), batch.labels).value().item();
  return sum / static_cast<double>(batches.size());
}

/// The least r whose expected rise is at most `rise`.
std::int64_t rank_for(const std::vector<double>& increases, double rise) {
  auto r = static_cast<std::int64_t>(increases.size());
  for (double sum = 0; r > 1; --r)
    if ((sum += increases[static_cast<std::size_t>(r - 1)]) > rise) break;
  return r;
}

void measure(Layer& model, const Dataset& images, double rise, std::int64_t observed, std::int64_t measured) {
  BatchFeed feed(images, {.batch_size = kBatch}, {}, DType::float32);
  feed.start_epoch(0);
  model.set_training(true);
  const std::vector<Weight*> weights = eligible_weights(model);
  const std::vector<Param*> biases = biases_of(weights, model);
  std::vector<LossMetric> metrics;
  std::vector<double> positions;
  {
    const CutObservers observers(weights);
    for (std::int64_t i = 0; i < observed; ++i) {
      const Batch batch = feed.next().value();
      backward(softmax_cross_entropy(model.forward(Var(batch.images)), batch.labels));
    }
    for (std::size_t i = 0; i < weights.size(); ++i) {
      metrics.emplace_back(observers.of(i));
      positions.push_back(positions_per_sample(observers.of(i)));
    }
  }
  std::vector<Batch> batches;
  for (std::int64_t i = 0; i < measured; ++i) batches.push_back(feed.next().value());
  const double before = mean_loss(model, batches);
  std::printf("loss %.4f before\n%-24s %10s %5s %5s %10s %10s %10s %8s\n", before, "weight", "positions", "O", "r",
              "all", "expected", "measured", "times");
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const std::vector<double>& increases = metrics[i].increases();
    const std::int64_t r = rank_for(increases, rise);
    const Tensor w = weights[i]->matrix(), kept = w.clone();
    const Tensor bias = biases[i] ? biases[i]->value.value() : Tensor();
    const Tensor kept_bias = biases[i] ? bias.clone() : Tensor();
    const FactorPair cut = apply_gauge(metrics[i].cut(kept, r), Gauge::split_sigma, true);
    w.copy_from(product(cut.outer, cut.inner));
    if (biases[i]) add_in_place(bias, metrics[i].bias_change(kept_bias, r));
    const double after = mean_loss(model, batches);
    w.copy_from(kept);
    if (biases[i]) bias.copy_from(kept_bias);
    const double expected = std::accumulate(increases.begin() + r, increases.end(), 0.0);
    std::printf("%-24s %10.0f %5lld %5lld %10.3g %10.4f %10.4f %8s\n", weights[i]->name().c_str(), positions[i],
                static_cast<long long>(weights[i]->rows()), static_cast<long long>(r),
                std::accumulate(increases.begin(), increases.end(), 0.0), expected, after - before,
                expected > 0 ? fmt::format("{:.2f}", (after - before) / expected).c_str() : "-");
  }
}

}  // namespace
}  // namespace ab

int main(int argc, char** argv) {
  CLI::App app("How far what a cut is expected to cost is from what it costs");
  std::string model_file, data_dir, conv_factors = "spatial";
  double rise = 0.02;
  std::int64_t observed = 80, measured = 80;
  app.add_option("--model-file", model_file, "a run folder or a file of a dense model")->required();
  app.add_option("--data-dir", data_dir)->required();
  app.add_option("--rise", rise, "of the loss, expected");
  app.add_option("--observed", observed, "batches of 32 whose outputs and gradients are observed");
  app.add_option("--measured", measured, "batches of 32 whose loss is measured");
  app.add_option("--conv-factors", conv_factors, "of convolutions: spatial (1*k and k*1) or channel (k*k and 1*1)")
      ->check(CLI::IsMember({"channel", "spatial"}))
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  ab::set_compute_threads(2, 1);
  const std::string file = ab::model_path(model_file);
  const ab::LoadedModel loaded = ab::model_from_file(ab::read_safetensors(file), file);
  for (ab::Weight* weight : ab::eligible_weights(*loaded.model))
    weight->set_conv_factors(conv_factors == "spatial" ? ab::ConvFactors::spatial : ab::ConvFactors::channel);
  const ab::DatasetEntry& entry = ab::find_dataset(loaded.info.dataset);
  ab::measure(*loaded.model, *entry.load(ab::folder_of(entry, data_dir), 0, 0, true).train, rise, observed, measured);
}
