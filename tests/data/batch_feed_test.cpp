// SPDX-License-Identifier: MIT
//
// What a GPU makes of bytes is, bit for bit, what the loader makes on the host, and a feed delivers it in order.
#include "data/batch_feed.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "data/augment.h"
#include "data/finish_images.h"
#include "data/transform.h"
#include "engine/device/device.h"
#include "tests/error_message.h"
#include "tests/random_images.h"
#include "tests/tensor_values.h"
#include "tests/thread_team.h"

namespace ab {
namespace {

using test::contains;
using test::message_of;
using test::random_set;

/// This processor, and a GPU where there is one.
std::vector<Device> devices() {
  std::vector<Device> list{{}};
  if (cuda_device_count() > 0) list.push_back({DeviceKind::cuda, 0});
  return list;
}

// ---- The kernel ----

/// All images of `set`, finished on `device` and brought back.
Tensor finish_on(Device device, const ImageSet& set, const std::vector<ImageDraws>& draws, const Mix& mix,
                 DType dtype = DType::float32) {
  const Tensor pixels = Tensor::from(set.pixels, {set.count, set.height, set.width, 3}, device);
  const std::span bytes(reinterpret_cast<const std::uint8_t*>(draws.data()), draws.size() * sizeof(ImageDraws));
  const Tensor drawn = Tensor::from(bytes, {std::ssize(bytes)}, device);
  return finish_images(pixels, reinterpret_cast<const ImageDraws*>(drawn.raw()), normalisation_of(set), mix, dtype)
      .to(Device{});
}

/// The same with what the loader uses on the host.
Tensor finish_reference(const ImageSet& set, const std::vector<ImageDraws>& draws, const Mix& mix) {
  const Tensor images({set.count, set.height, set.width, 3});
  ImageTransform normalise(set, set.height, set.width);
  Image cropped, unused;
  for (std::int64_t i = 0; i < set.count; ++i) {
    const ImageDraws& drawn = draws[static_cast<std::size_t>(i)];
    float* out = images.data<float>() + i * set.image_bytes();
    shift(set.read(i, unused), drawn.shift, cropped);
    normalise.prepare(cropped.view(), out);
    erase(drawn.erased, set.width, out);
  }
  if (mix.share < 1) mix_images(mix, images);
  return images;
}

void expect_equal(const Tensor& a, const Tensor& b) {
  ASSERT_EQ(a.shape(), b.shape());
  ASSERT_EQ(a.dtype(), b.dtype());
  EXPECT_TRUE(a.to_doubles() == b.to_doubles());
}

TEST(FinishImages, EqualsTheHostForEveryShiftAndFlip) {
  std::vector<ImageDraws> draws;
  for (int dy = -4; dy <= 4; ++dy)
    for (int dx = -4; dx <= 4; ++dx)
      for (const bool flip : {false, true})
        for (const bool reflects : {false, true})
          if (!reflects || std::max(std::abs(dy), std::abs(dx)) <= 2)
            draws.push_back({.shift = {dy, dx, flip, reflects}, .erased = {}});
  for (const auto& [height, width] : {std::pair{3, 3}, {7, 10}, {32, 32}}) {  // 3: whole windows may be black
    ImageSet set = random_set(std::ssize(draws), height, width);
    set.mean = {0.49f, 0.48f, 0.45f};
    set.stddev = {0.20f, 0.25f, 0.30f};
    const Tensor expected = finish_reference(set, draws, {});
    for (const Device device : devices())
      for (const DType dtype : {DType::float32, DType::bfloat16, DType::float16})
        expect_equal(finish_on(device, set, draws, {}, dtype), cast(expected, dtype));
  }
}

TEST(FinishImages, ErasesAndMixesAsTheHostDoes) {
  const ImageSet set = random_set(5, 12, 9);
  std::vector<ImageDraws> draws(5);
  draws[0] = {.shift = {.dy = -3, .dx = 3, .flip = true}, .erased = {2, 3, 4, 5}};
  draws[3].erased = {0, 0, 11, 8};
  draws[4].shift = {.dy = 4, .dx = -4, .flip = false};
  for (const Mix& mix :
       {Mix{}, Mix{0.3, false, {}}, Mix{0, false, {}}, Mix{0.8, true, {3, 0, 5, 4}}, Mix{0, true, {0, 0, 12, 9}}})
    for (const Device device : devices())
      expect_equal(finish_on(device, set, draws, mix), finish_reference(set, draws, mix));
}

TEST(FinishImages, LanesShareARow) {
  const ImageSet set = random_set(3, 6, 5);
  const std::vector<ImageDraws> draws(3, {.shift = {.dy = -2, .dx = 2, .flip = true}, .erased = {1, 1, 2, 2}});
  const Mix mix{0.3, false, {}};
  const Tensor got = poisoned({3, 6, 5, 3});
  run_rows_in_threads(4, 18,
                      kernels::FinishImages<float>{set.pixels.data(), draws.data(), got.data<float>(), 3, 6, 5,
                                                   normalisation_of(set), mix});
  expect_equal(got, finish_reference(set, draws, mix));
}

TEST(FinishImages, RefusesWhatIsNotBytes) {
  EXPECT_TRUE(contains(message_of(ErrorKind::config,
                                  [] {
                                    finish_images(Tensor({1, 4, 4, 3}), nullptr, {}, {}, DType::float32);
                                  }),
                       "needs bytes [N, H, W, 3], got float32 [1, 4, 4, 3]"));
}

// ---- The feed ----

/// What is in a batch, on the host.
struct Content {
  std::vector<double> images, labels, mixed_labels;
  double mix;
  bool operator==(const Content&) const = default;
};

Content content_of(const Batch& batch) {
  return {batch.images.to_doubles(), batch.labels.to_doubles(),
          batch.mixed_labels.defined() ? batch.mixed_labels.to_doubles() : std::vector<double>{}, batch.mix};
}

void prefetch(Loader&) {}
void prefetch(BatchFeed& feed) { feed.prefetch(); }

/// The batches of a pass from number `first` on, at most `count`. After a pause, the loader has the next ones ready.
template <class Source>
std::vector<Content> pass_of_feed(Source& source, std::int64_t epoch, std::int64_t first = 0, std::int64_t count = 100,
                                  std::chrono::milliseconds pause = {}) {
  std::vector<Content> pass;
  source.start_epoch(epoch, first);
  while (std::ssize(pass) < count) {
    const auto batch = source.next();
    if (!batch) break;
    std::this_thread::sleep_for(pause);
    prefetch(source);
    pass.push_back(content_of(*batch));
  }
  return pass;
}

TEST(BatchFeed, DeliversWhatTheLoaderMakesOfEveryRecipe) {
  ImageSet padded = random_set(45, 20), resized = padded;
  resized.cropping = Cropping::resized;
  const Augmentation everything{.rand_augment = 2, .color_jitter = {0.4, 0.4, 0.4}, .random_erasing = 0.5};
  const std::pair<const char*, LoaderOptions> recipes[] = {
      {"crop and flip", {}},
      {"nothing", {.augmentation = {.crop_and_flip = false}}},
      {"erasing", {.augmentation = {.random_erasing = 0.5}}},
      {"jitter", {.augmentation = {.color_jitter = {0, 0.4, 0}}}},
      {"TrivialAugment, repeated", {.repeats = 3, .augmentation = {.trivial_augment = true}}},
      {"everything", {.augmentation = everything, .mix = {.mixup = 0.4, .cutmix = 1}}},
      {"another size", {.image_size = 24, .mix = {.cutmix = 1}}},
      {"sizes by epoch", {.image_size = 24, .epoch_sizes = {{10, 1}, {16, 2}}}},
      {"evaluation", {.training = false}},
  };
  for (auto [name, options] : recipes)
    for (const ImageSet* set : {&padded, &resized}) {
      options.batch_size = 7;  // an odd one has an image in the middle that is not mixed
      options.seed = 3;
      Loader loader(*set, options);
      LoaderOptions for_device = options;
      for_device.staged = true;
      Loader staged(*set, for_device);
      loader.start_epoch(0), staged.start_epoch(0);
      while (const auto batch = loader.next()) {
        const Batch bytes = *staged.next();
        expect_equal(
            finish_images(bytes.images, bytes.draws.data(), normalisation_of(*set), bytes.pixel_mix, DType::float32),
            batch->images);
      }
      for (const Device device : devices()) {
        BatchFeed feed(*set, options, device, DType::float32);
        EXPECT_EQ(feed.batches_per_epoch(), loader.batches_per_epoch());
        for (const std::int64_t epoch : {0, 1, 2})
          EXPECT_TRUE(pass_of_feed(feed, epoch) == pass_of_feed(loader, epoch)) << name;
      }
    }
}

TEST(BatchFeed, StartsAndStopsAnywhereInAPass) {
  const ImageSet set = random_set(83, 8);
  for (const Device device : devices())
    for (const bool training : {true, false})  // without, the last batch is smaller
      for (const int threads : {0, 1, 3})
        for (const int pause : {0, 2}) {
          const LoaderOptions options{
              .batch_size = 8, .training = training, .prefetch = threads ? 2 : 0, .threads = std::max(threads, 1)};
          Loader loader(set, options);
          BatchFeed feed(set, options, device, DType::float32);
          for (const std::int64_t first : {10, 9, 5, 0})
            for (const std::int64_t count : {0, 1, 4, 100})
              EXPECT_TRUE(pass_of_feed(feed, first, first, count, std::chrono::milliseconds(pause)) ==
                          pass_of_feed(loader, first, first, count));
          pass_of_feed(feed, 0);
          EXPECT_FALSE(feed.next().has_value()) << "a finished pass stays finished";
        }
}

TEST(BatchFeed, BatchesOutliveTheNextOnes) {
  const ImageSet set = random_set(64, 8);
  const LoaderOptions options{.batch_size = 8, .mix = {.mixup = 1}};
  Loader loader(set, options);
  const auto expected = pass_of_feed(loader, 0);
  for (const Device device : devices()) {
    BatchFeed feed(set, options, device, DType::float32);
    feed.start_epoch(0);
    std::vector<Batch> batches;
    while (const auto batch = feed.next()) {
      batches.push_back(*batch);
      feed.prefetch();
    }
    ASSERT_EQ(batches.size(), expected.size());
    for (std::size_t i = 0; i < batches.size(); ++i) EXPECT_TRUE(content_of(batches[i]) == expected[i]) << i;
  }
}

TEST(BatchFeed, ImagesHaveTheTypeOfActivations) {
  const ImageSet set = random_set(8);
  for (const DType dtype : {DType::float32, DType::bfloat16, DType::float16}) {
    Loader loader(set, {.batch_size = 8});
    loader.start_epoch(0);
    const Tensor expected = cast(loader.next()->images, dtype);
    for (const Device device : devices()) {
      BatchFeed feed(set, {.batch_size = 8}, device, dtype);
      feed.start_epoch(0);
      const std::optional<Batch> batch = feed.next();
      EXPECT_EQ(batch->images.device(), device);
      EXPECT_EQ(batch->labels.device(), device);
      expect_equal(batch->images.to(Device{}), expected);
    }
  }
}

TEST(BatchFeed, FailsWhereTheLoaderFails) {
  ImageSet set = random_set(40, 8);
  set.labels[17] = 60001;
  for (const Device device : devices())
    for (const int prefetch : {0, 2}) {
      BatchFeed feed(set, {.batch_size = 8, .training = false, .prefetch = prefetch}, device, DType::float32);
      for (const int pause : {0, 5}) {
        EXPECT_EQ(pass_of_feed(feed, 0, 0, 2, std::chrono::milliseconds(pause)).size(), 2u)
            << "batches before the failing one are delivered";
        for (int again = 0; again < 2; ++again)
          EXPECT_TRUE(contains(message_of(ErrorKind::data, [&] { feed.next(); }), "image 17 has the label 60001"));
      }
    }
}

}  // namespace
}  // namespace ab
