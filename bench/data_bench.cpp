// SPDX-License-Identifier: MIT
//
// Images a second of the input pipeline. It has to stay far above what training consumes: one core should
// prepare 200,000 images of 32 · 32 a second or more. ImageNet's part reads the files of
// ABTRAIN_IMAGENET_DIR.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "data/dataset.h"
#include "data/datasets.h"
#include "data/image_cache.h"
#include "data/loader.h"

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
    for (std::size_t i = 0; i < s.pixels.size(); ++i) s.pixels[i] = static_cast<std::uint8_t>((i * 2654435761u) >> 24);
    return s;
  }();
  return set;
}

/// Whole passes with a batch size of 128. Arguments: threads (0: on this one); training; whether a GPU does the rest.
void loader_pass(benchmark::State& state) {
  const int threads = static_cast<int>(state.range(0));
  Loader loader(training_set(), {.training = state.range(1) != 0,
                                 .staged = state.range(2) != 0,
                                 .prefetch = threads ? 2 : 0,
                                 .threads = std::max(threads, 1)});
  std::int64_t epoch = 0, images = 0;
  for (auto _ : state) {
    loader.start_epoch(epoch++);
    while (const auto batch = loader.next()) images += batch->count();
  }
  state.SetItemsProcessed(images);
}
BENCHMARK(loader_pass)
    ->ArgNames({"threads", "training", "staged"})
    ->ArgsProduct({{0, 1, 2}, {0, 1}, {0, 1}})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

/// Training passes over real files with a batch size of 16. Arguments: threads (0: on this one), and whether images stay decoded
/// in memory, in which an untimed pass has put them.
void imagenet_pass(benchmark::State& state) {
  const char* folder = std::getenv("ABTRAIN_IMAGENET_DIR");
  if (!folder) return state.SkipWithError("ABTRAIN_IMAGENET_DIR is not set");
  std::shared_ptr<const Dataset> train = load_imagenet(folder).train;
  const bool cached = state.range(1) != 0;
  if (cached) {
    const auto cache = std::make_shared<ImageCache>(train->count, CacheRoom{std::int64_t{4} << 30});
    train = std::make_shared<CachedImages>(train, cache, 0);
    Image unused;
    for (std::int64_t i = 0; i < train->count; ++i) train->read(i, unused);
  }
  const int threads = static_cast<int>(state.range(0));
  Loader loader(*train, {.batch_size = 16, .prefetch = threads ? 2 : 0, .threads = std::max(threads, 1)});
  std::int64_t epoch = 0, images = 0;
  for (auto _ : state) {
    loader.start_epoch(epoch++);
    while (const auto batch = loader.next()) images += batch->count();
  }
  state.SetItemsProcessed(images);
}
BENCHMARK(imagenet_pass)
    ->ArgNames({"threads", "cached"})
    ->ArgsProduct({{0, 1, 2}, {0, 1}})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace ab

BENCHMARK_MAIN();
