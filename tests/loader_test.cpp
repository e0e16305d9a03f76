// SPDX-License-Identifier: MIT
//
// From a set of images to a rank's batches: sampler, augmentation, loader. What is drawn at random is checked
// against slow references written from the definitions.
#include "data/loader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <thread>
#include <utility>

#include "data/augment.h"
#include "data/sampler.h"
#include "engine/core/random.h"
#include "tests/error_message.h"

namespace ab {
namespace {

using testing::contains;
using testing::message_of;

/// A set of images of random bytes, the number of an image readable from its label.
ImageSet random_set(std::int64_t count, int side = 32) {
  ImageSet set;
  set.name = "random";
  set.count = count;
  set.height = set.width = side;
  set.classes = 60000;
  const Philox random{7, 1};
  for (std::int64_t i = 0; i < count * set.image_bytes(); ++i)
    set.pixels.push_back(static_cast<std::uint8_t>(random.bits(static_cast<std::uint64_t>(i))));
  for (std::int64_t i = 0; i < count; ++i) set.labels.push_back(static_cast<std::uint16_t>(i));
  return set;
}

// ---- Sampler ----

TEST(Sampler, ShuffledOrderIsAUniformPermutation) {
  std::vector<std::int64_t> sorted = shuffled_order(1000, 3, 5);
  EXPECT_EQ(sorted, shuffled_order(1000, 3, 5));
  EXPECT_NE(sorted, shuffled_order(1000, 3, 6)) << "epochs must differ";
  EXPECT_NE(sorted, shuffled_order(1000, 4, 5)) << "seeds must differ";
  std::sort(sorted.begin(), sorted.end());
  for (std::int64_t i = 0; i < 1000; ++i) ASSERT_EQ(sorted[static_cast<std::size_t>(i)], i);
  EXPECT_TRUE(shuffled_order(0, 0, 0).empty());
  // All 24 orders of four samples, 200 times each on average: the deviation of a count is 14.
  std::map<std::vector<std::int64_t>, int> seen;
  for (std::int64_t epoch = 0; epoch < 4800; ++epoch) ++seen[shuffled_order(4, 1, epoch)];
  EXPECT_EQ(seen.size(), 24u);
  for (const auto& [order, times] : seen) EXPECT_NEAR(times, 200, 70);
}

TEST(Sampler, TrainingGivesEqualFullBatchesWithoutOverlap) {
  for (const int ranks : {1, 2, 4, 5})
    for (const std::int64_t count : {40, 103}) {
      std::set<std::int64_t> seen;
      for (int rank = 0; rank < ranks; ++rank) {
        const Sampler sampler{count, 8, rank, ranks, 1, true};
        EXPECT_EQ(sampler.batches_per_epoch(), count / (8 * ranks));
        const auto samples = sampler.samples(2);
        EXPECT_EQ(std::ssize(samples), 8 * sampler.batches_per_epoch());
        for (std::int64_t sample : samples) {
          EXPECT_TRUE(seen.insert(sample).second) << "sample " << sample << " twice";
          EXPECT_TRUE(sample >= 0 && sample < count);
        }
        if (!samples.empty()) {
          EXPECT_NE(samples, sampler.samples(3)) << "epochs must differ";
        }
      }
    }
}

TEST(Sampler, GlobalBatchDoesNotDependOnTheNumberOfRanks) {
  const auto whole = Sampler{100, 20, 0, 1, 9, true}.samples(4);
  for (const int ranks : {2, 4, 5})
    for (int rank = 0; rank < ranks; ++rank) {
      const std::int64_t share = 20 / ranks;
      const auto mine = Sampler{100, share, rank, ranks, 9, true}.samples(4);
      for (std::int64_t step = 0; step < 5; ++step)
        for (std::int64_t i = 0; i < share; ++i)
          EXPECT_EQ(mine[static_cast<std::size_t>(step * share + i)],
                    whole[static_cast<std::size_t>(step * 20 + rank * share + i)]);
    }
}

TEST(Sampler, EvaluationSeesEachSampleOnce) {
  for (const int ranks : {1, 2, 4, 5})
    for (const std::int64_t count : {1, 7, 8, 33, 103}) {
      std::vector<int> times(static_cast<std::size_t>(count));
      for (int rank = 0; rank < ranks; ++rank) {
        const Sampler sampler{count, 8, rank, ranks, 1, false};
        const auto samples = sampler.samples(0);
        EXPECT_TRUE(std::is_sorted(samples.begin(), samples.end()));
        EXPECT_EQ(sampler.batches_per_epoch(), (std::ssize(samples) + 7) / 8);
        for (std::int64_t sample : samples) ++times.at(static_cast<std::size_t>(sample));
      }
      EXPECT_EQ(std::count(times.begin(), times.end(), 1), count)
          << ranks << " ranks, " << count << " samples";
    }
}

// ---- Augmentation ----

/// From the definition: pad the image with black, cut a window, mirror it, normalise; in double.
std::vector<double> augment_reference(const ImageSet& set, std::int64_t sample, const Augmentation& a,
                                      const std::array<float, 3>& mean, const std::array<float, 3>& stddev) {
  const int side = set.height, padded_side = side + 2 * kCropPadding;
  std::vector<double> padded(static_cast<std::size_t>(padded_side * padded_side * 3), 0.0), out;
  for (int y = 0; y < side; ++y)
    for (int x = 0; x < side; ++x)
      for (int c = 0; c < 3; ++c)
        padded[static_cast<std::size_t>(((y + kCropPadding) * padded_side + x + kCropPadding) * 3 + c)] =
            set.image(sample)[static_cast<std::size_t>((y * side + x) * 3 + c)] / 255.0;
  for (int y = 0; y < side; ++y)
    for (int x = 0; x < side; ++x)
      for (std::size_t c = 0; c < 3; ++c) {
        const int from = a.flip ? side - 1 - x : x;
        const double value =
            padded[static_cast<std::size_t>(((y + a.dy) * padded_side + from + a.dx) * 3) + c];
        out.push_back((value - mean[c]) / stddev[c]);
      }
  return out;
}

TEST(Augment, MatchesTheReferenceForEveryCropAndFlip) {
  const std::array<float, 3> mean{0.49f, 0.48f, 0.45f}, stddev{0.20f, 0.25f, 0.30f};
  for (const int side : {3, 7, 32}) {  // 3 is narrower than the padding: whole windows may be black
    const ImageSet set = random_set(1, side);
    ImagePreparer preparer(side, side, mean, stddev);
    std::vector<float> out(set.pixels.size());
    for (int dy = 0; dy <= 8; ++dy)
      for (int dx = 0; dx <= 8; ++dx)
        for (const bool flip : {false, true}) {
          preparer.prepare(set.image(0), {dy, dx, flip}, out.data());
          const auto expected = augment_reference(set, 0, {dy, dx, flip}, mean, stddev);
          for (std::size_t i = 0; i < out.size(); ++i)
            ASSERT_NEAR(out[i], expected[i], 2e-6)
                << side << ' ' << dy << ' ' << dx << ' ' << flip << ' ' << i;
        }
  }
}

TEST(Augment, DrawsAllCropsAndFlipsEquallyOften) {
  std::map<std::pair<int, int>, int> crops;
  int flips = 0;
  for (std::int64_t sample = 0; sample < 81 * 200; ++sample) {
    const Augmentation a = draw_augmentation(11, 2, sample);
    ++crops[{a.dy, a.dx}];
    flips += a.flip;
  }
  EXPECT_EQ(crops.size(), 81u);
  for (const auto& [crop, times] : crops) {
    EXPECT_TRUE(crop.first >= 0 && crop.first <= 8 && crop.second >= 0 && crop.second <= 8);
    EXPECT_NEAR(times, 200, 70);  // five deviations
  }
  EXPECT_NEAR(flips, 8100, 320);
  const auto draws = [](std::uint64_t seed, std::int64_t epoch) {
    std::vector<std::array<int, 3>> all;
    for (std::int64_t i = 0; i < 20; ++i) {
      const Augmentation a = draw_augmentation(seed, epoch, i);
      all.push_back({a.dy, a.dx, a.flip});
    }
    return all;
  };
  EXPECT_EQ(draws(1, 1), draws(1, 1));
  EXPECT_NE(draws(1, 1), draws(1, 2)) << "epochs must differ";
  EXPECT_NE(draws(1, 1), draws(2, 1)) << "seeds must differ";
}

// ---- Loader ----

struct Pass {
  std::vector<std::vector<float>> images;
  std::vector<std::vector<std::int64_t>> labels;
  bool operator==(const Pass&) const = default;
};

Pass read_pass(Loader& loader, std::int64_t epoch, std::chrono::microseconds pause = {}) {
  Pass pass;
  loader.start_epoch(epoch);
  while (const auto batch = loader.next()) {
    const auto images = batch->images.span<float>();
    const auto labels = batch->labels.span<std::int64_t>();
    pass.images.emplace_back(images.begin(), images.end());
    pass.labels.emplace_back(labels.begin(), labels.end());
    std::this_thread::sleep_for(pause);
  }
  return pass;
}

TEST(Loader, BatchesAreTheSameForAnyPrefetchAndTiming) {
  const ImageSet set = random_set(70);
  LoaderOptions options{.batch_size = 8, .seed = 5, .prefetch = 0};
  Loader plain(set, options);
  const Pass expected = read_pass(plain, 3);
  ASSERT_EQ(expected.labels.size(), 8u);
  for (const int prefetch : {1, 2, 5, 100})
    for (const int pause : {0, 500}) {
      options.prefetch = prefetch;
      Loader loader(set, options);
      read_pass(loader, 0);
      EXPECT_EQ(read_pass(loader, 3, std::chrono::microseconds(pause)), expected) << prefetch << ' ' << pause;
      EXPECT_FALSE(loader.next().has_value()) << "a finished pass stays finished";
    }
}

TEST(Loader, BatchesFollowSamplerAndAugmentation) {
  const ImageSet set = random_set(50);
  const LoaderOptions options{.batch_size = 6, .rank = 1, .world_size = 2, .seed = 8};
  Loader loader(set, options);
  const Pass pass = read_pass(loader, 2);
  const auto samples = Sampler{50, 6, 1, 2, 8, true}.samples(2);
  ASSERT_EQ(std::ssize(pass.labels), loader.batches_per_epoch());
  for (std::size_t i = 0; i < samples.size(); ++i) {
    ASSERT_EQ(pass.labels[i / 6][i % 6], samples[i]);
    const auto expected =
        augment_reference(set, samples[i], draw_augmentation(8, 2, samples[i]), options.mean, options.stddev);
    for (std::size_t j = 0; j < expected.size(); ++j)
      ASSERT_NEAR(pass.images[i / 6][i % 6 * expected.size() + j], expected[j], 2e-6);
  }
}

TEST(Loader, EvaluationIsExactAndUnaugmented) {
  const ImageSet set = random_set(29);
  std::vector<std::int64_t> seen;
  for (int rank = 0; rank < 3; ++rank) {
    Loader loader(set, {.batch_size = 4, .rank = rank, .world_size = 3, .training = false, .augment = true});
    loader.start_epoch(7);
    while (const auto batch = loader.next()) {
      EXPECT_EQ(batch->images.shape(), (Shape{batch->count(), 32, 32, 3}));
      for (std::int64_t label : batch->labels.span<std::int64_t>()) seen.push_back(label);
      const auto sample = batch->labels.span<std::int64_t>()[0];
      const LoaderOptions defaults;
      const auto expected = augment_reference(set, sample, {}, defaults.mean, defaults.stddev);
      for (std::size_t j = 0; j < expected.size(); ++j)
        ASSERT_NEAR(batch->images.span<float>()[j], expected[j], 2e-6);
    }
  }
  std::sort(seen.begin(), seen.end());
  ASSERT_EQ(seen.size(), 29u);
  for (std::int64_t i = 0; i < 29; ++i) EXPECT_EQ(seen[static_cast<std::size_t>(i)], i);
}

TEST(Loader, CanBeRestartedAndDroppedInEveryState) {
  const ImageSet set = random_set(64);
  for (const int prefetch : {0, 1, 3}) {
    const LoaderOptions options{.batch_size = 8, .prefetch = prefetch};
    { Loader never_started(set, options); }
    Loader loader(set, options);
    const Pass expected = read_pass(loader, 1);
    for (int taken = 0; taken <= 9; ++taken) {
      Loader dropped(set, options);
      loader.start_epoch(0);
      dropped.start_epoch(0);
      for (int i = 0; i < taken; ++i) {
        EXPECT_EQ(loader.next().has_value(), i < 8);
        dropped.next();
      }
      EXPECT_EQ(read_pass(loader, 1), expected) << "after " << taken << " batches of an abandoned pass";
    }
  }
}

TEST(Loader, RethrowsWhatFailedInItsThread) {
  ImageSet set = random_set(24);
  set.labels[17] = 60001;
  for (const int prefetch : {0, 2}) {
    Loader loader(set, {.batch_size = 8, .training = false, .prefetch = prefetch});
    for (int attempt = 0; attempt < 2; ++attempt) {
      loader.start_epoch(attempt);
      EXPECT_TRUE(loader.next().has_value());
      EXPECT_TRUE(loader.next().has_value()) << "batches before the failing one are delivered";
      for (int again = 0; again < 2; ++again)
        EXPECT_TRUE(contains(message_of(ErrorKind::data, [&] { loader.next(); }),
                             "image 17 has the label 60001, expected 0 to 59999"));
    }
  }
}

TEST(Loader, StallNamesTheThread) {
  const ImageSet set = random_set(20000, 8);
  Loader loader(set, {.batch_size = 20000, .stall_timeout_seconds = 1e-6});
  loader.start_epoch(0);
  const std::string message = message_of(ErrorKind::data, [&] { loader.next(); });
  EXPECT_TRUE(contains(message, "'abtrain-loader' has delivered nothing for 1e-06 s"));
  EXPECT_TRUE(contains(message, "batch 0 of 1 in epoch 0"));
}

TEST(Loader, RefusesWhatCannotWork) {
  const ImageSet set = random_set(10);
  const auto config_error = [&](const LoaderOptions& options) {
    return message_of(ErrorKind::config, [&] { Loader loader(set, options); });
  };
  EXPECT_TRUE(contains(config_error({.batch_size = 4, .world_size = 3}), "10 training images are fewer"));
  EXPECT_TRUE(contains(config_error({.batch_size = 0}), "batch size"));
  EXPECT_TRUE(contains(config_error({.batch_size = 1, .rank = 2, .world_size = 2}), "rank 2"));
  EXPECT_TRUE(contains(config_error({.batch_size = 1, .prefetch = -1}), "prefetch"));
  EXPECT_TRUE(contains(config_error({.batch_size = 1, .stddev = {1, 0, 1}}), "channel 1"));
  Loader loader(set, {.batch_size = 1});
  EXPECT_TRUE(contains(message_of(ErrorKind::config, [&] { loader.next(); }), "start_epoch()"));
  ImageSet broken = set;
  broken.labels.pop_back();
  EXPECT_TRUE(
      contains(message_of(ErrorKind::data, [&] { Loader bad(broken, {.batch_size = 1}); }), "9 labels"));
}

}  // namespace
}  // namespace ab
