// SPDX-License-Identifier: MIT
//
// Images a second of the input pipeline. It has to stay far above what training consumes: one core should
// prepare 200,000 images of 32 · 32 a second or more.
#include <benchmark/benchmark.h>

#include <array>
#include <cstdint>
#include <vector>

#include "data/augment.h"
#include "data/dataset.h"
#include "data/loader.h"
#include "data/sampler.h"
#include "data/shape_images.h"

namespace ab {
namespace {

/// As large as CIFAR-10, so that shuffled reads miss the caches as they do in training.
const ImageSet& training_set() {
  static const ImageSet set = [] {
    ImageSet s;
    s.name = "benchmark";
    s.count = 50000;
    s.height = s.width = 32;
    s.classes = 10;
    s.labels.resize(50000);
    s.pixels.resize(50000 * 3072);
    for (std::size_t i = 0; i < s.pixels.size(); ++i)
      s.pixels[i] = static_cast<std::uint8_t>((i * 2654435761u) >> 24);
    return s;
  }();
  return set;
}

/// Augmenting and normalising alone: one image over and over.
void prepare_image(benchmark::State& state) {
  const LoaderOptions defaults;
  ImagePreparer preparer(32, 32, defaults.mean, defaults.stddev);
  std::vector<float> out(3072);
  std::int64_t sample = 0;
  for (auto _ : state) {
    preparer.prepare(training_set().image(sample % 64), draw_augmentation(0, 0, sample), out.data());
    benchmark::DoNotOptimize(out.data());
    ++sample;
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(prepare_image);

/// Whole passes with a batch size of 128. First argument: prefetch (0: on this thread); second: training.
void loader_pass(benchmark::State& state) {
  Loader loader(training_set(),
                {.training = state.range(1) != 0, .prefetch = static_cast<int>(state.range(0))});
  std::int64_t epoch = 0, images = 0;
  for (auto _ : state) {
    loader.start_epoch(epoch++);
    while (const auto batch = loader.next()) images += batch->count();
  }
  state.SetItemsProcessed(images);
}
BENCHMARK(loader_pass)
    ->ArgNames({"prefetch", "training"})
    ->ArgsProduct({{0, 2}, {0, 1}})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

void shuffle(benchmark::State& state) {
  std::int64_t epoch = 0;
  for (auto _ : state) benchmark::DoNotOptimize(shuffled_order(50000, 0, epoch++).data());
  state.SetItemsProcessed(50000 * state.iterations());
}
BENCHMARK(shuffle)->Unit(benchmark::kMillisecond);

void draw_synthetic_image(benchmark::State& state) {
  std::array<std::uint8_t, kShapeImageBytes> planes;
  std::int64_t index = 0;
  for (auto _ : state) {
    draw_shape_image(0, Split::train, index++, planes);
    benchmark::DoNotOptimize(planes.data());
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(draw_synthetic_image)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace ab

BENCHMARK_MAIN();
