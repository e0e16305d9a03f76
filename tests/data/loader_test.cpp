// SPDX-License-Identifier: MIT
//
// From a set of images to a rank's batches: sampler, augmentation, loader. What is drawn at random is checked
// against slow references written from the definitions.
#include "data/loader.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <future>
#include <map>
#include <mutex>
#include <set>
#include <span>
#include <system_error>
#include <thread>
#include <tuple>
#include <utility>

#include "data/augment.h"
#include "data/crop.h"
#include "data/draws.h"
#include "data/sampler.h"
#include "tests/error_message.h"
#include "tests/random_images.h"

namespace ab {
namespace {

using test::contains;
using test::message_of;
using test::random_set;

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

TEST(Sampler, BlocksOfPackedArchivesAreMixedInWindows) {
  const std::int64_t count = 3 * kShuffleWindow + 500;
  const std::vector<std::int64_t> packed = packed_order(count), order = blocks_in_order(count, 3, 5);
  EXPECT_EQ(order, blocks_in_order(count, 3, 5));
  EXPECT_NE(order, blocks_in_order(count, 3, 6)) << "epochs must differ";
  EXPECT_NE(order, blocks_in_order(count, 4, 5)) << "seeds must differ";
  std::vector<std::int64_t> block_of(packed.size(), -1);
  for (std::size_t i = 0; i < packed.size(); ++i)
    block_of[static_cast<std::size_t>(packed[i])] = static_cast<std::int64_t>(i) / kShuffleBlock;
  EXPECT_EQ(std::ranges::count(block_of, -1), 0) << "archives hold every image";
  std::set<std::int64_t> seen(order.begin(), order.end());
  EXPECT_EQ(std::pair(std::ssize(order), std::ssize(seen)), std::pair(count, count)) << "each image once";
  std::vector<std::set<std::int64_t>> windows(4);
  int neighbours = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    windows[i / kShuffleWindow].insert(block_of[static_cast<std::size_t>(order[i])]);
    neighbours +=
        i > 0 && block_of[static_cast<std::size_t>(order[i])] == block_of[static_cast<std::size_t>(order[i - 1])];
  }
  for (const std::set<std::int64_t>& blocks : windows)
    EXPECT_LE(std::ssize(blocks), kShuffleWindow / kShuffleBlock + 1);
  EXPECT_GT(*windows[0].rbegin() - *windows[0].begin(), kShuffleWindow / kShuffleBlock)
      << "blocks come in random order";
  EXPECT_LT(neighbours, count / 8) << "one in sixteen";
  const auto whole = Sampler{count, 20, 0, 1, 9, true, 1, Shuffle::blocks}.samples(4);
  const auto all = blocks_in_order(count, 9, 4);
  EXPECT_TRUE(std::ranges::equal(whole, std::span(all).first(whole.size())));
  const auto mine = Sampler{count, 10, 1, 2, 9, true, 1, Shuffle::blocks}.samples(4);
  EXPECT_TRUE(std::ranges::equal(std::span(mine).first(10), std::span(whole).subspan(10, 10))) << "of two ranks";
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

TEST(Sampler, NodesApartHaveTheirOwnImagesInTheirOwnOrder) {
  for (const std::int64_t count : {103, 96}) {
    std::vector<std::vector<std::int64_t>> of_node(3);
    for (int rank = 0; rank < 6; ++rank) {
      const Sampler sampler{.count = count, .batch_size = 4, .rank = rank, .world_size = 6, .seed = 2, .nodes = 3};
      const auto mine = sampler.samples(5);
      EXPECT_EQ(std::ssize(mine), sampler.batches_per_epoch() * 4);
      for (const std::int64_t sample : mine) {
        EXPECT_EQ(sample % 3, rank / 2);
        EXPECT_LT(sample, count);
        of_node[static_cast<std::size_t>(rank / 2)].push_back(sample / 3);
      }
    }
    for (auto& samples : of_node) {
      const std::set<std::int64_t> different(samples.begin(), samples.end());
      EXPECT_EQ(std::ssize(different), std::ssize(samples));
      EXPECT_EQ(std::ssize(samples), count / 24 * 8);
    }
    EXPECT_NE(of_node[0], of_node[1]);
  }
}

TEST(Sampler, RepetitionsStandInARowOfTheGlobalOrder) {
  const auto order = shuffled_order(100, 9, 4);
  const auto whole = Sampler{100, 20, 0, 1, 9, true, 3};
  EXPECT_EQ(whole.batches_per_epoch(), 5);
  const auto all = whole.samples(4);
  ASSERT_EQ(all.size(), 100u);
  for (std::int64_t i = 0; i < 100; ++i) {
    EXPECT_EQ(all[static_cast<std::size_t>(i)], order[static_cast<std::size_t>(i / 3)]);
    EXPECT_EQ(whole.repetition(i), i % 3);
  }
  for (const int ranks : {2, 4, 5})
    for (int rank = 0; rank < ranks; ++rank) {
      const std::int64_t share = 20 / ranks;
      const Sampler mine{100, share, rank, ranks, 9, true, 3};
      const auto samples = mine.samples(4);
      for (std::int64_t place = 0; place < 5 * share; ++place) {
        const std::int64_t global = place / share * 20 + rank * share + place % share;
        EXPECT_EQ(samples[static_cast<std::size_t>(place)], all[static_cast<std::size_t>(global)]);
        EXPECT_EQ(mine.repetition(place), global % 3);
      }
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
      EXPECT_EQ(std::count(times.begin(), times.end(), 1), count) << ranks << " ranks, " << count << " samples";
    }
}

// ---- Augmentation ----

/// From the definition: surround the image with black or its reflection, cut a window, mirror it, normalise; in double.
std::vector<double> augment_reference(const ImageSet& set, std::int64_t sample, const Shift& a) {
  const int side = set.height;
  const auto inside = [&](int i) { return !a.reflects ? i : i < 0 ? -i : i >= side ? 2 * side - 2 - i : i; };
  std::vector<double> out;
  for (int y = 0; y < side; ++y)
    for (int x = 0; x < side; ++x)
      for (std::size_t c = 0; c < 3; ++c) {
        const int from_y = inside(y + a.dy), from_x = inside((a.flip ? side - 1 - x : x) + a.dx);
        const bool is_black = std::min(from_y, from_x) < 0 || std::max(from_y, from_x) >= side;
        const double value =
            is_black ? 0 : set.image(sample)[static_cast<std::size_t>((from_y * side + from_x) * 3) + c] / 255.0;
        out.push_back((value - set.mean[c]) / set.stddev[c]);
      }
  return out;
}

TEST(Augment, MatchesTheReferenceForEveryShiftAndFlip) {
  for (const int side : {3, 7, 32}) {  // 3 is narrower than four: whole windows may be black
    ImageSet set = random_set(1, side);
    set.mean = {0.49f, 0.48f, 0.45f};
    set.stddev = {0.20f, 0.25f, 0.30f};
    ImageTransform transform(set, side, side);
    Image unused;
    std::vector<float> out(set.pixels.size());
    for (int dy = -4; dy <= 4; ++dy)
      for (int dx = -4; dx <= 4; ++dx)
        for (const bool flip : {false, true})
          for (const bool reflects : {false, true}) {
            if (reflects && std::max(std::abs(dy), std::abs(dx)) >= side) continue;
            const Shift by{dy, dx, flip, reflects};
            transform.prepare(set.read(0, unused), out.data(), by);
            const auto expected = augment_reference(set, 0, by);
            for (std::size_t i = 0; i < out.size(); ++i)
              ASSERT_NEAR(out[i], expected[i], 2e-6) << side << ' ' << dy << ' ' << dx << ' ' << flip << ' ' << i;
          }
  }
}

TEST(Augment, DrawsAllCropsAndFlipsEquallyOften) {
  std::map<std::pair<int, int>, int> crops;
  int flips = 0;
  for (std::int64_t sample = 0; sample < 81 * 200; ++sample) {
    const Shift a = draw_padded_crop({11, 2, sample});
    EXPECT_FALSE(a.reflects);
    ++crops[{a.dy, a.dx}];
    flips += a.flip;
  }
  EXPECT_EQ(crops.size(), 81u);
  for (const auto& [crop, times] : crops) {
    EXPECT_TRUE(std::abs(crop.first) <= 4 && std::abs(crop.second) <= 4);
    EXPECT_NEAR(times, 200, 70);  // five deviations
  }
  EXPECT_NEAR(flips, 8100, 320);
  const auto draws = [](std::uint64_t seed, std::int64_t epoch) {
    std::vector<Shift> all;
    for (std::int64_t i = 0; i < 20; ++i) all.push_back(draw_padded_crop({seed, epoch, i}));
    return all;
  };
  EXPECT_EQ(draws(1, 1), draws(1, 1));
  EXPECT_NE(draws(1, 1), draws(1, 2)) << "epochs must differ";
  EXPECT_NE(draws(1, 1), draws(2, 1)) << "seeds must differ";
}

TEST(Augment, DrawsShiftsEquallyOftenAndFlipsInTurn) {
  std::map<std::pair<int, int>, int> shifts;
  int flips = 0;
  for (std::int64_t sample = 0; sample < 25 * 400; ++sample) {
    const Shift a = draw_shift({11, 2, sample}, 2), next = draw_shift({11, 3, sample}, 2);
    EXPECT_TRUE(a.reflects);
    EXPECT_NE(a.flip, next.flip);
    EXPECT_EQ(a.flip, draw_shift({11, 4, sample}, 2).flip);
    ++shifts[{a.dy, a.dx}];
    flips += a.flip;
  }
  EXPECT_EQ(shifts.size(), 25u);
  for (const auto& [by, times] : shifts) {
    EXPECT_TRUE(std::abs(by.first) <= 2 && std::abs(by.second) <= 2);
    EXPECT_NEAR(times, 400, 100);
  }
  EXPECT_NEAR(flips, 5000, 250);
}

// ---- Held-out images ----

TEST(HoldOut, PartsTheImagesEvenlySpread) {
  const auto all = std::make_shared<ImageSet>(random_set(50));
  for (const std::int64_t n : {1, 7, 25, 49}) {
    const TrainAndTest parts = hold_out(all, n);
    EXPECT_EQ(parts.test->count, n);
    EXPECT_EQ(parts.train->count, 50 - n);
    std::vector<std::int64_t> tested, seen;  // labels of random_set are numbers of images
    Image unused;
    for (const auto* part : {parts.test.get(), parts.train.get()})
      for (std::int64_t i = 0; i < part->count; ++i) {
        const std::int64_t image = part->label(i);
        seen.push_back(image);
        if (part == parts.test.get()) tested.push_back(image);
        EXPECT_EQ(std::memcmp(part->read(i, unused).pixels, all->image(image).data(), 32 * 32 * 3), 0);
      }
    for (std::int64_t i = 1; i < n; ++i)
      EXPECT_NEAR(tested[static_cast<std::size_t>(i)] - tested[static_cast<std::size_t>(i - 1)],
                  50.0 / static_cast<double>(n), 1.0);
    std::sort(seen.begin(), seen.end());
    for (std::int64_t i = 0; i < 50; ++i) EXPECT_EQ(seen[static_cast<std::size_t>(i)], i);
  }
  EXPECT_TRUE(contains(message_of(ErrorKind::config, [&] { hold_out(all, 50); }), "leaves none to train on"));
}

TEST(HoldOut, TakesOfAllClassesInProportion) {
  const auto all = std::make_shared<ImageSet>(random_set(100));
  for (std::size_t i = 0; i < 100; ++i)
    all->labels[i] = static_cast<std::uint16_t>(i % 10);  // in turn, as drawn images
  const TrainAndTest parts = hold_out(all, 20);
  std::map<int, int> tested;
  for (std::int64_t i = 0; i < 20; ++i) ++tested[parts.test->label(i)];
  EXPECT_EQ(tested.size(), 10u);
  for (const auto& [label, images] : tested) EXPECT_EQ(images, 2) << label;
}

// ---- Loader ----

struct Pass {
  std::vector<std::vector<float>> images;
  std::vector<std::vector<std::int64_t>> labels;
  std::vector<double> shares;  ///< Batch::mix
  bool operator==(const Pass&) const = default;
};

Pass read_pass(Loader& loader, std::int64_t epoch, std::chrono::microseconds pause = {}, std::int64_t first = 0) {
  Pass pass;
  loader.start_epoch(epoch, first);
  while (const auto batch = loader.next()) {
    const auto images = batch->images.span<float>();
    const auto labels = batch->labels.span<std::int64_t>();
    pass.images.emplace_back(images.begin(), images.end());
    pass.labels.emplace_back(labels.begin(), labels.end());
    pass.shares.push_back(batch->mix);
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
  for (const int prefetch : {1, 2, 100})
    for (const int pause : {0, 500}) {
      options.prefetch = prefetch;
      options.threads = pause ? prefetch + 1 : prefetch;
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
    const auto expected = augment_reference(set, samples[i], draw_padded_crop({8, 2, samples[i]}));
    for (std::size_t j = 0; j < expected.size(); ++j)
      ASSERT_NEAR(pass.images[i / 6][i % 6 * expected.size() + j], expected[j], 2e-6);
  }
}

TEST(Loader, DrawsAnewForEveryRepetition) {
  const ImageSet set = random_set(50);
  std::set<std::vector<float>> seen;
  for (int rank = 0; rank < 2; ++rank) {
    Loader loader(set, {.batch_size = 6, .rank = rank, .world_size = 2, .seed = 8, .repeats = 4});
    const Pass pass = read_pass(loader, 2);
    const auto samples = Sampler{50, 12, 0, 1, 8, true, 4}.samples(2);  // of both ranks
    ASSERT_EQ(pass.labels.size(), 4u);
    for (std::size_t i = 0; i < 24; ++i) {
      const std::size_t place = i / 6 * 12 + static_cast<std::size_t>(rank) * 6 + i % 6;
      ASSERT_EQ(pass.labels[i / 6][i % 6], samples[place]);
      const SampleKey key{8, 2, samples[place], static_cast<std::int64_t>(place % 4)};
      const auto expected = augment_reference(set, samples[place], draw_padded_crop(key));
      const auto image = pass.images[i / 6].begin() + static_cast<std::ptrdiff_t>(i % 6 * expected.size());
      for (std::size_t j = 0; j < expected.size(); ++j)
        ASSERT_NEAR(image[static_cast<std::ptrdiff_t>(j)], expected[j], 2e-6);
      seen.emplace(image, image + static_cast<std::ptrdiff_t>(expected.size()));
    }
  }
  EXPECT_GT(seen.size(), 44u) << "of 48 crops, of 162 possible ones for each image";
}

TEST(Augment, NoRepetitionDrawsAsAnother) {
  // Every draw of an image, by key; the first repetition draws as ever.
  const auto draws = [](const SampleKey& key) {
    const ResizedCrop crop = draw_resized_crop(key, 300, 400);
    const Box erased = draw_erasing(key, 1, 300, 400);
    const Shift padded = draw_padded_crop(key), shifted = draw_shift(key, 4);
    return std::tuple{crop.box.left, erased.left, padded.dx * 9 + padded.dy, shifted.dx * 9 + shifted.dy,
                      Draws(key, 1).uniform()};
  };
  std::set<int> lefts, erased, padded, shifted;
  std::set<double> uniform;
  for (std::int64_t repetition = 0; repetition < 40; ++repetition) {
    const auto [a, b, c, d, e] = draws({8, 2, 5, repetition});
    lefts.insert(a), erased.insert(b), padded.insert(c), shifted.insert(d), uniform.insert(e);
  }
  EXPECT_GT(lefts.size(), 20u);
  EXPECT_GT(erased.size(), 20u);
  EXPECT_GT(padded.size(), 20u);
  EXPECT_GT(shifted.size(), 20u);
  EXPECT_EQ(uniform.size(), 40u);
  EXPECT_EQ(Draws({8, 2, 5}, std::uint64_t{7} << 32).uniform(), Draws(8, (std::uint64_t{7} << 32) + 2, 5).uniform());
}

TEST(Loader, ShiftsInPlaceOfCropsWhenAskedTo) {
  const ImageSet set = random_set(24);
  LoaderOptions options{.batch_size = 6, .seed = 8};
  options.augmentation.shift = 2;
  Loader loader(set, options);
  options.staged = true;
  Loader staged(set, options);
  const auto samples = Sampler{24, 6, 0, 1, 8, true}.samples(3);
  loader.start_epoch(3), staged.start_epoch(3);
  for (std::size_t b = 0; b < 4; ++b) {
    const Batch batch = *loader.next(), bytes = *staged.next();
    for (std::size_t i = 0; i < 6; ++i) {
      const std::int64_t sample = samples[6 * b + i];
      const Shift drawn = draw_shift({8, 3, sample}, 2);
      EXPECT_EQ(bytes.draws[i].shift, drawn);
      const auto expected = augment_reference(set, sample, drawn);
      for (std::size_t j = 0; j < expected.size(); ++j)
        ASSERT_NEAR(batch.images.span<float>()[i * expected.size() + j], expected[j], 2e-6);
    }
  }
  const ImageSet small = random_set(8, 8);
  options.augmentation.shift = 8;
  EXPECT_TRUE(contains(message_of(ErrorKind::config, [&] { Loader(small, options); }),
                       "images of 8×8 pixels cannot be shifted by 8"));
}

TEST(Loader, EpochsHaveImagesOfTheirSize) {
  ImageSet set = random_set(24, 20);
  set.cropping = Cropping::resized;
  for (const int threads : {0, 2}) {
    LoaderOptions options{.batch_size = 6, .prefetch = threads ? 2 : 0, .threads = std::max(threads, 1)};
    options.image_size = 16, options.epoch_sizes = {{8, 2}, {12, 3}};
    Loader loader(set, options);
    for (const auto& [epoch, side] : {std::pair{0, 8}, {1, 8}, {2, 12}, {3, 16}, {1, 8}}) {
      LoaderOptions alone = options;
      alone.image_size = side, alone.epoch_sizes.clear();
      Loader of_one_size(set, alone);
      EXPECT_EQ(read_pass(loader, epoch, {}, 1), read_pass(of_one_size, epoch, {}, 1)) << epoch;
    }
    options.training = false;
    Loader evaluation(set, options);
    evaluation.start_epoch(0);
    EXPECT_EQ(evaluation.next()->images.dim(1), 16);
  }
}

TEST(Loader, EvaluationIsExactAndUnaugmented) {
  const ImageSet set = random_set(29);
  std::vector<std::int64_t> seen;
  for (int rank = 0; rank < 3; ++rank) {
    Loader loader(set, {.batch_size = 4, .rank = rank, .world_size = 3, .training = false});
    loader.start_epoch(7);
    while (const auto batch = loader.next()) {
      EXPECT_EQ(batch->images.shape(), (Shape{batch->count(), 32, 32, 3}));
      for (std::int64_t label : batch->labels.span<std::int64_t>()) seen.push_back(label);
      const auto sample = batch->labels.span<std::int64_t>()[0];
      const auto expected = augment_reference(set, sample, {});
      for (std::size_t j = 0; j < expected.size(); ++j) ASSERT_NEAR(batch->images.span<float>()[j], expected[j], 2e-6);
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

TEST(Loader, StartsInTheMiddleOfAPass) {
  const ImageSet set = random_set(70);
  for (const int threads : {0, 1, 3}) {
    // Everything that is drawn at random is on: what remains of a pass must not depend on where it began.
    Loader loader(set, {.batch_size = 8,
                        .seed = 5,
                        .repeats = 3,
                        .augmentation = {.rand_augment = 2, .color_jitter = {0.4, 0.4, 0.4}, .random_erasing = 0.5},
                        .mix = {.mixup = 0.4, .cutmix = 1},
                        .prefetch = threads ? 2 : 0,
                        .threads = std::max(threads, 1)});
    const Pass whole = read_pass(loader, 3);
    ASSERT_EQ(whole.labels.size(), 8u);
    for (std::size_t first = 0; first <= 8; ++first) {
      const Pass rest = read_pass(loader, 3, {}, static_cast<std::int64_t>(first));
      ASSERT_EQ(rest.labels.size(), 8 - first);
      EXPECT_TRUE(std::equal(rest.labels.begin(), rest.labels.end(), whole.labels.begin() + first));
      EXPECT_TRUE(std::equal(rest.images.begin(), rest.images.end(), whole.images.begin() + first));
      EXPECT_TRUE(std::equal(rest.shares.begin(), rest.shares.end(), whole.shares.begin() + first));
    }
    EXPECT_TRUE(contains(message_of(ErrorKind::config, [&] { loader.start_epoch(0, 9); }), "cannot start at 9"));
  }
}

TEST(Loader, MixesBatchesWithTheirReverse) {
  const ImageSet set = random_set(64);
  LoaderOptions options{.batch_size = 8, .rank = 1, .world_size = 2, .seed = 4, .prefetch = 0};
  Loader plain(set, options);
  const Pass before = read_pass(plain, 2);
  EXPECT_EQ(before.shares, std::vector<double>(4, 1.0));
  options.mix = {.mixup = 0.7, .cutmix = 0.7};
  Loader mixing(set, options);
  mixing.start_epoch(2);
  for (std::int64_t step = 0; step < 4; ++step) {
    const auto batch = mixing.next();
    ASSERT_TRUE(batch.has_value());
    const auto& image = before.images[static_cast<std::size_t>(step)];
    const auto& label = before.labels[static_cast<std::size_t>(step)];
    const Tensor expected = Tensor::from(image, batch->images.shape());
    const Mix mix = draw_mix(options.mix, 4, 2, 2 * step + 1, 32, 32);
    mix_images(mix, expected);
    EXPECT_TRUE(
        std::equal(expected.data<float>(), expected.data<float>() + expected.numel(), batch->images.data<float>()));
    EXPECT_EQ(batch->mix, mix.share);
    const auto labels = batch->labels.span<std::int64_t>(), mixed = batch->mixed_labels.span<std::int64_t>();
    EXPECT_TRUE(std::equal(label.begin(), label.end(), labels.begin()));
    EXPECT_TRUE(std::equal(label.rbegin(), label.rend(), mixed.begin()));
  }
  options.training = false;
  Loader evaluation(set, options);
  evaluation.start_epoch(0);
  const auto batch = evaluation.next();
  EXPECT_FALSE(batch->mixed_labels.defined());
  EXPECT_EQ(batch->mix, 1);
}

TEST(Loader, AugmentsOnlyInTraining) {
  const ImageSet set = random_set(40);
  const LoaderOptions plain{.batch_size = 40, .augmentation = {.crop_and_flip = false}, .prefetch = 0};
  const auto images_of = [&](const LoaderOptions& options) {
    Loader loader(set, options);
    return read_pass(loader, 0).images.at(0);
  };
  const auto expected = images_of(plain);
  for (const Augmentation& augmentation :
       {Augmentation{true, 0, 9, 0}, Augmentation{false, 1, 9, 0}, Augmentation{false, 0, 9, 1}}) {
    LoaderOptions options = plain;
    options.augmentation = augmentation;
    EXPECT_NE(images_of(options), expected);
    options.training = false;
    const auto evaluated = images_of(options);
    options.augmentation = {};
    EXPECT_EQ(images_of(options), evaluated);
  }
  // Erased pixels have the mean colour, so they are zero after normalising.
  LoaderOptions options = plain;
  options.augmentation.random_erasing = 1;
  const auto erased = images_of(options);
  std::size_t zeros = 0;
  for (std::size_t i = 0; i < erased.size(); ++i) {
    EXPECT_TRUE(erased[i] == 0 || erased[i] == expected[i]);
    zeros += erased[i] == 0;
  }
  EXPECT_GT(zeros, erased.size() / 50);
  EXPECT_LT(zeros, erased.size() / 3);
}

TEST(Loader, ScalesToTheSizeAskedFor) {
  const ImageSet set = random_set(10);
  for (const bool training : {true, false}) {
    Loader loader(set, {.batch_size = 10, .training = training, .image_size = 48, .prefetch = 0});
    loader.start_epoch(0);
    const auto batch = loader.next();
    ASSERT_EQ(batch->images.shape(), (Shape{10, 48, 48, 3}));
    const std::int64_t sample = batch->labels.span<std::int64_t>()[3];
    Image stored, scaled;
    ImageView image = set.read(sample, stored);
    if (training) {
      shift(image, draw_padded_crop({0, 0, sample}), stored);
      image = stored.view();
    }
    Resizer().resize(image, {0, 0, 32, 32}, 48, 48, scaled);
    for (std::size_t i = 0; i < scaled.pixels.size(); ++i)
      ASSERT_NEAR(batch->images.data<float>()[3 * scaled.pixels.size() + i],
                  (scaled.pixels[i] / 255.0 - set.mean[i % 3]) / set.stddev[i % 3], 2e-6);
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

/// Every image takes a while.
class SlowSet : public ImageSet {
 public:
  SlowSet(ImageSet set, std::chrono::milliseconds delay) : ImageSet(std::move(set)), delay_(delay) {}
  ImageView read(std::int64_t i, Image& buffer, const ChoosePart& part = {}) const override {
    std::this_thread::sleep_for(delay_);
    return ImageSet::read(i, buffer, part);
  }

 private:
  std::chrono::milliseconds delay_;
};

/// Reads that wait until two are under way; counts them.
class PairedSet : public ImageSet {
 public:
  explicit PairedSet(ImageSet set) : ImageSet(std::move(set)) {}
  ImageView read(std::int64_t i, Image& buffer, const ChoosePart& part = {}) const override {
    std::unique_lock lock(mutex_);
    ++reads_;
    ++inside_;
    paired_ = paired_ || inside_ == 2;
    changed_.notify_all();
    changed_.wait_for(lock, std::chrono::seconds(20), [&] { return paired_; });
    --inside_;
    return ImageSet::read(i, buffer, part);
  }
  bool paired() const { return paired_; }
  int reads() const {
    const std::lock_guard lock(mutex_);
    return reads_;
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  mutable int inside_ = 0, reads_ = 0;
  mutable bool paired_ = false;
};

TEST(Loader, ThreadsShareABatchAndHoldNoMoreOfThemWhenTheyAreMany) {
  const PairedSet one_batch(random_set(8, 8)), set(random_set(80, 8));
  Loader shared(one_batch, {.batch_size = 8, .threads = 2});
  shared.start_epoch(0);
  EXPECT_TRUE(shared.next().has_value());
  EXPECT_TRUE(one_batch.paired());

  Loader loader(set, {.batch_size = 8, .prefetch = 2, .threads = 16});
  loader.start_epoch(0);
  loader.look_ahead(2);
  for (int taken = 0; taken <= 2; ++taken) {
    while (set.reads() < 8 * (3 + taken)) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(set.reads(), 8 * (3 + taken)) << "two that wait, and one more";
    EXPECT_TRUE(loader.next().has_value());
  }
}

TEST(Loader, TheFirstImageThatFailsIsTheOneThatIsNamed) {
  /// The earlier an image, the later it fails.
  class BadSet : public ImageSet {
   public:
    explicit BadSet(ImageSet set) : ImageSet(std::move(set)) {}
    ImageView read(std::int64_t i, Image&, const ChoosePart& = {}) const override {
      std::this_thread::sleep_for(std::chrono::milliseconds(std::max<std::int64_t>(0, 12 - i)));
      throw Error(ErrorKind::data, fmt::format("image {} is bad", i));
    }
  };
  const BadSet set(random_set(24, 8));
  for (int attempt = 0; attempt < 20; ++attempt) {
    Loader loader(set, {.batch_size = 12, .training = false, .prefetch = 2, .threads = 6});
    loader.start_epoch(0);
    EXPECT_TRUE(contains(message_of(ErrorKind::data, [&] { loader.look_ahead(2); }), "image 0 is bad"));
  }
}

/// Images of which some can never be read.
class HolesSet : public ImageSet {
 public:
  HolesSet(ImageSet set, std::set<std::int64_t> holes) : ImageSet(std::move(set)), holes_(std::move(holes)) {}
  ImageView read(std::int64_t i, Image& buffer, const ChoosePart& part = {}) const override {
    AB_CHECK_KIND(data, !holes_.contains(i), "image {} is a hole", i);
    return ImageSet::read(i, buffer, part);
  }

 private:
  std::set<std::int64_t> holes_;
};

/// Every second image is bad, so that half of those that are drawn in place of one are bad too.
std::set<std::int64_t> every_second(std::int64_t count) {
  std::set<std::int64_t> images;
  for (std::int64_t i = 0; i < count; i += 2) images.insert(i);
  return images;
}

std::shared_ptr<BadImages> any_number() { return std::make_shared<BadImages>(1000); }

TEST(Loader, AnotherImageTakesThePlaceOfABadOneForAnyRanksAndThreads) {
  const HolesSet set(random_set(64), every_second(64));
  std::vector<std::int64_t> first_pass;
  for (const std::int64_t epoch : {0, 1}) {
    const auto order = Sampler{64, 16, 0, 1, 5, true}.samples(epoch);
    std::vector<std::int64_t> expected;  // of the first loader: labels of random_set are numbers of images
    for (const auto& [ranks, threads] : {std::pair{1, 0}, {1, 8}, {2, 1}, {4, 3}}) {
      std::vector<std::int64_t> labels(64);
      const std::size_t share = 16 / static_cast<std::size_t>(ranks);
      for (int rank = 0; rank < ranks; ++rank) {
        Loader loader(set, {.batch_size = static_cast<std::int64_t>(share),
                            .rank = rank,
                            .world_size = ranks,
                            .seed = 5,
                            .prefetch = threads ? 2 : 0,
                            .threads = std::max(threads, 1),
                            .bad_images = any_number()});
        const Pass pass = read_pass(loader, epoch);
        for (std::size_t step = 0; step < 4; ++step)
          for (std::size_t i = 0; i < share; ++i) {
            const std::size_t place = step * 16 + static_cast<std::size_t>(rank) * share + i;
            const std::int64_t label = labels[place] = pass.labels[step][i];
            EXPECT_EQ(label % 2, 1) << "a bad one";
            if (order[place] % 2 == 1) {
              EXPECT_EQ(label, order[place]) << "the others stay";
            }
            const auto seen = augment_reference(set, label, draw_padded_crop({5, epoch, order[place]}));
            for (std::size_t k = 0; k < seen.size(); ++k)
              ASSERT_NEAR(pass.images[step][i * seen.size() + k], seen[k], 2e-6) << "the crop is that of the place";
          }
      }
      if (expected.empty()) expected = labels;
      EXPECT_EQ(labels, expected) << ranks << " ranks, " << threads << " threads";
    }
    std::vector<std::int64_t> by_image(64);
    for (std::size_t place = 0; place < 64; ++place) by_image[static_cast<std::size_t>(order[place])] = expected[place];
    if (epoch == 0) first_pass = by_image;
    else EXPECT_NE(by_image, first_pass) << "another epoch draws others";
  }
}

TEST(Loader, RepetitionsOfABadImageHaveOneInItsPlace) {
  const HolesSet set(random_set(64), every_second(64));
  const auto order = Sampler{64, 16, 0, 1, 5, true, 4}.samples(0);
  std::vector<std::int64_t> labels(64);
  for (int rank = 0; rank < 2; ++rank) {
    Loader loader(
        set, {.batch_size = 8, .rank = rank, .world_size = 2, .seed = 5, .repeats = 4, .bad_images = any_number()});
    const Pass pass = read_pass(loader, 0);
    for (std::size_t i = 0; i < 32; ++i)
      labels[i / 8 * 16 + static_cast<std::size_t>(rank) * 8 + i % 8] = pass.labels[i / 8][i % 8];
  }
  Loader plain(set, {.batch_size = 16, .seed = 5, .bad_images = any_number()});  // one after the other
  const Pass once = read_pass(plain, 0);
  for (std::size_t place = 0; place < 64; ++place)
    EXPECT_EQ(labels[place], once.labels[place / 4 / 16][place / 4 % 16]) << place;
}

TEST(Loader, ASetWithoutAnyGoodImageIsAnError) {
  std::set<std::int64_t> all;
  for (std::int64_t i = 0; i < 8; ++i) all.insert(i);
  const HolesSet set(random_set(8, 8), all);
  Loader loader(set, {.batch_size = 4, .bad_images = any_number()});
  loader.start_epoch(0);
  EXPECT_TRUE(contains(message_of(ErrorKind::data, [&] { loader.next(); }), "is a hole"));
}

TEST(Loader, EvaluationGoesOnWithoutBadImages) {
  // Of three ranks with batches of 4: a whole batch of rank 0, some of others, and all that rank 1 has last.
  const std::set<std::int64_t> bad{0, 1, 2, 3, 9, 17, 18, 28};
  const HolesSet set(random_set(29, 8), bad);
  for (const int threads : {0, 3})
    for (const bool staged : {false, true}) {
      std::vector<std::int64_t> seen;
      for (int rank = 0; rank < 3; ++rank) {
        const auto written_down = any_number();
        Loader loader(set, {.batch_size = 4,
                            .rank = rank,
                            .world_size = 3,
                            .training = false,
                            .staged = staged,
                            .prefetch = threads ? 2 : 0,
                            .threads = std::max(threads, 1),
                            .bad_images = written_down});
        loader.start_epoch(0);
        while (const auto batch = loader.next()) {
          ASSERT_GT(batch->count(), 0);
          ASSERT_EQ(batch->images.shape(), (Shape{batch->count(), 8, 8, 3}));
          const auto labels = batch->labels.span<std::int64_t>();
          const std::vector<double> values = batch->images.to_doubles();
          for (std::size_t i = 0; i < labels.size(); ++i) {
            seen.push_back(labels[i]);
            const auto expected = augment_reference(set, labels[i], {});
            for (std::size_t k = 0; k < expected.size(); ++k)
              ASSERT_NEAR(values[i * expected.size() + k], staged ? set.image(labels[i])[k] : expected[k], 2e-6);
          }
          if (staged) {
            EXPECT_EQ(batch->draws.size(), labels.size());
          }
        }
        EXPECT_FALSE(loader.ready());
        EXPECT_FALSE(written_down->names().empty()) << "each rank has some";
      }
      std::sort(seen.begin(), seen.end());
      std::vector<std::int64_t> expected;
      for (std::int64_t i = 0; i < 29; ++i)
        if (!bad.contains(i)) expected.push_back(i);
      EXPECT_EQ(seen, expected) << threads << ' ' << staged;
    }
}

TEST(Loader, ABatchWithoutImagesIsNotReady) {
  const HolesSet set(random_set(2, 8), {0, 1});
  const auto bad = any_number();
  Loader loader(set, {.batch_size = 2, .training = false, .bad_images = bad});
  loader.start_epoch(0);
  loader.look_ahead(1);
  EXPECT_EQ(bad->names().size(), 2u);
  EXPECT_FALSE(loader.ready()) << "who asks takes next() to have one";
  EXPECT_FALSE(loader.next());
}

TEST(BadImages, AreToldOnceAndTenTimesAtMost) {
  BadImages bad(20);
  testing::internal::CaptureStderr();
  for (int again = 0; again < 2; ++again)
    for (int i = 0; i < 15; ++i) bad.add(fmt::format("image {}", i), fmt::format("{} is cut off", i), "on it goes");
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 10) << said;
  EXPECT_TRUE(contains(said, "warning: 0 is cut off; on it goes\n"));
  EXPECT_TRUE(contains(said, "warning: 9 is cut off; on it goes; summary.json counts the bad images that follow\n"));
  EXPECT_EQ(bad.names().size(), 15u);
}

TEST(BadImages, MoreThanTheLimitAreAnError) {
  BadImages bad(2);
  bad.add("a", "a is gone", "");
  bad.add("b", "b is gone", "");
  EXPECT_NO_THROW(bad.add_all({"a", "b"}));
  EXPECT_TRUE(contains(message_of(ErrorKind::data,
                                  [&] {
                                    bad.add_all({"a", "b", "c"});
                                  }),
                       "3 images could not be read or decoded, a among them, and --max-bad-images allows 2"));
  EXPECT_TRUE(contains(message_of(ErrorKind::data, [&] { bad.add("d", "d is gone", ""); }), "d among them"));
}

TEST(Loader, SaysWhetherABatchIsReady) {
  const SlowSet set(random_set(20, 8), std::chrono::milliseconds(20));
  for (const int prefetch : {0, 2}) {
    Loader loader(set, {.batch_size = 10, .prefetch = prefetch});
    loader.start_epoch(0);
    EXPECT_FALSE(loader.ready()) << "ten images take a while";
    while (prefetch > 0 && !loader.ready()) std::this_thread::yield();
    while (loader.next()) {
    }
    EXPECT_FALSE(loader.ready()) << "at the end of a pass";
  }
}

TEST(Loader, ASlowBatchIsNotAStall) {
  const SlowSet set(random_set(20, 8), std::chrono::milliseconds(20));
  Loader loader(set, {.batch_size = 20, .stall_timeout_seconds = 0.2});
  loader.start_epoch(0);
  EXPECT_TRUE(loader.next().has_value());
}

TEST(Loader, LooksAheadForABatchThatCannotBeHad) {
  ImageSet set = random_set(12, 8);
  std::fill(set.labels.begin(), set.labels.end(), 0);
  set.labels[7] = static_cast<std::uint16_t>(set.classes);  // one too many, which is noticed when the image is read
  Loader loader(set, {.batch_size = 1, .training = false, .prefetch = 4, .threads = 1});
  loader.start_epoch(0, 2);
  EXPECT_NO_THROW(loader.look_ahead(4));
  EXPECT_TRUE(loader.next().has_value());
  EXPECT_NO_THROW(loader.look_ahead(4));
  EXPECT_TRUE(loader.next().has_value());
  EXPECT_TRUE(contains(message_of(ErrorKind::data, [&] { loader.look_ahead(4); }), "image 7"));
  for (int batch = 4; batch < 7; ++batch) EXPECT_TRUE(loader.next().has_value()) << "those before it are whole";
  EXPECT_TRUE(contains(message_of(ErrorKind::data, [&] { loader.next(); }), "image 7"));
  loader.start_epoch(0, 10);
  EXPECT_NO_THROW(loader.look_ahead(100)) << "no more than the pass has";
  for (const int none : {0, -1}) loader.look_ahead(none);  // all are under way to a GPU
}

#if !defined(AB_SANITIZED)  // which take address space as they like
// A machine that is short of threads or memory in the middle of a run makes it slower.
TEST(Loader, PreparesBatchesItselfWhereNoThreadCanBeMade) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const ImageSet set = random_set(6, 8);
        Loader loader(set, {.batch_size = 2, .training = false});
        rlimit limit{};
        ::getrlimit(RLIMIT_AS, &limit);
        std::int64_t pages = 0;
        std::ifstream("/proc/self/statm") >> pages;
        limit.rlim_cur = static_cast<rlim_t>(pages * ::sysconf(_SC_PAGESIZE) + (4 << 20));  // a stack is larger
        ::setrlimit(RLIMIT_AS, &limit);
        bool has_thread = true;
        try {
          std::thread([] {}).join();
        } catch (const std::system_error&) {
          has_thread = false;
        }
        loader.start_epoch(0);
        loader.look_ahead(2);
        const bool looked = loader.ready();
        int batches = 0;
        while (loader.next()) ++batches;
        std::_Exit(has_thread || !looked ? 1 : batches);
      },
      testing::ExitedWithCode(3), "");
}
#endif

TEST(Loader, StallNamesTheThread) {
  const SlowSet set(random_set(1, 8), std::chrono::milliseconds(300));
  Loader loader(set, {.batch_size = 1, .stall_timeout_seconds = 0.02});
  loader.start_epoch(0);
  const std::string message = message_of(ErrorKind::data, [&] { loader.next(); });
  EXPECT_TRUE(contains(message, "'abtrain-loader' have delivered nothing for 0.02 s"));
  EXPECT_TRUE(contains(message, "batch 0 of 1 in epoch 0"));
}

/// Reads that return when `end` is ready, or after a time that no test has.
class StuckSet : public ImageSet {
 public:
  StuckSet(ImageSet set, std::shared_future<void> end) : ImageSet(std::move(set)), end_(std::move(end)) {}
  ImageView read(std::int64_t i, Image& buffer, const ChoosePart& part = {}) const override {
    is_read_ = true;
    end_.wait_for(std::chrono::seconds(20));
    return ImageSet::read(i, buffer, part);
  }

  bool is_read() const { return is_read_; }

 private:
  std::shared_future<void> end_;
  mutable std::atomic<bool> is_read_ = false;
};

/// Drops a loader, in which all reads are stuck, after `use`; threads and set go when the reads return.
template <class F> void leave_behind(const F& use) {
  using Clock = std::chrono::steady_clock;
  std::promise<void> end;
  auto set = std::make_shared<StuckSet>(random_set(8, 8), end.get_future().share());
  const std::weak_ptr<StuckSet> seen = set;
  const auto start = Clock::now();
  {
    Loader loader(*set, {.batch_size = 1, .threads = 3, .stall_timeout_seconds = 0.1});
    loader.start_epoch(0);
    use(loader);
    while (!set->is_read()) std::this_thread::yield();
  }
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(10));
  set.reset();
  EXPECT_FALSE(seen.expired()) << "threads read from it";
  end.set_value();
  while (!seen.expired() && Clock::now() - start < std::chrono::seconds(40)) std::this_thread::yield();
  EXPECT_TRUE(seen.expired()) << "nobody reads from it";
}

TEST(Loader, ReadsThatNeverReturnAreLeftBehind) {
  leave_behind([](Loader& loader) {
    EXPECT_TRUE(contains(message_of(ErrorKind::data, [&] { loader.next(); }), "delivered nothing for 0.1 s"));
    EXPECT_TRUE(contains(message_of(ErrorKind::data, [&] { loader.start_epoch(1); }), "still read images"));
  });
  leave_behind([](Loader&) {});  // such as a run that another rank ends
}

TEST(Loader, RefusesWhatCannotWork) {
  const ImageSet set = random_set(10);
  const auto config_error = [&](const LoaderOptions& options) {
    return message_of(ErrorKind::config, [&] { Loader loader(set, options); });
  };
  EXPECT_TRUE(contains(config_error({.batch_size = 4, .world_size = 3}), "10 training images are fewer"));
  Loader loader(set, {.batch_size = 1});
  EXPECT_TRUE(contains(message_of(ErrorKind::config, [&] { loader.next(); }), "start_epoch()"));
}

}  // namespace
}  // namespace ab
