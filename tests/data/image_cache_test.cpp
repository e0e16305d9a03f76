// SPDX-License-Identifier: MIT
#include "data/image_cache.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <thread>

#include "engine/core/machine.h"
#include "tests/error_message.h"
#include "tests/random_images.h"

namespace ab {
namespace {

constexpr std::int64_t kImages = 40;
constexpr int kHeight = 20, kWidth = 30;
constexpr std::int64_t kImageBytes = std::int64_t{3} * kHeight * kWidth;
const ChoosePart kPart = [](int height, int width) { return Box{height / 4, width / 3, height / 2, width / 2}; };

/// A set in memory that counts how often it is read, and decodes into the buffer as sets of files do.
class CountedSet final : public Dataset {
 public:
  CountedSet() : images_(test::random_set(kImages, kHeight, kWidth)) {
    name = "counted", count = kImages, classes = images_.classes, height = kHeight, width = kWidth;
  }
  int label(std::int64_t i) const override { return images_.label(i); }
  ImageView read(std::int64_t i, Image& buffer, const ChoosePart& part = {}) const override {
    ++reads;
    AB_CHECK_KIND(data, i != damaged || part, "image {} is damaged beyond its part", i);
    cut_out({images_.image(i).data(), kHeight, kWidth}, part ? part(kHeight, kWidth) : Box{0, 0, kHeight, kWidth},
            buffer);
    return buffer.view();
  }
  bool reads_files() const override { return true; }

  mutable std::atomic<int> reads = 0;
  std::int64_t damaged = -1;

 private:
  ImageSet images_;
};

/// The pixels of every image, and of a part of it.
std::vector<std::vector<std::uint8_t>> all_pixels(const Dataset& set) {
  std::vector<std::vector<std::uint8_t>> pixels;
  Image buffer;
  for (std::int64_t i = 0; i < set.count; ++i)
    for (const ChoosePart& part : {ChoosePart{}, kPart}) {
      if (!part && i == 7) continue;
      const ImageView image = set.read(i, buffer, part);
      pixels.emplace_back(image.pixels, image.pixels + image.bytes());
    }
  return pixels;
}

/// The exit code of another process that runs `body`, which returns whether all is well.
int in_another_process(const std::function<bool()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      ::_exit(body() ? 0 : 1);
    } catch (...) {
      ::_exit(2);
    }
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 100 + WTERMSIG(status);
}

TEST(ImageCache, GivesTheSamePixelsAndReadsEachImageOnce) {
  const auto set = std::make_shared<CountedSet>();
  const auto expected = all_pixels(*set);
  const auto cache = std::make_shared<ImageCache>(2 * kImages, kImages * kImageBytes);
  const CachedImages cached(set, cache, kImages);
  EXPECT_EQ(cached.fingerprint(), set->fingerprint());
  EXPECT_EQ(cached.label(5), set->label(5));
  set->reads = 0;
  for (const int pass : {1, 2, 3}) {
    EXPECT_EQ(all_pixels(cached), expected) << "pass " << pass;
    EXPECT_EQ(set->reads, kImages);
  }
  const ImageCache::Use use = cache->use();
  EXPECT_EQ(use.images, kImages);
  EXPECT_EQ(use.bytes, kImages * kImageBytes);
  EXPECT_EQ(use.read, kImages);
  EXPECT_EQ(use.read + use.found, 3 * std::ssize(expected));
  EXPECT_EQ(cache->find(0).pixels, nullptr) << "numbers of another part of the data";
}

TEST(ImageCache, KeepsAsManyAsFitAndDropsNone) {
  const auto set = std::make_shared<CountedSet>();
  const auto cache = std::make_shared<ImageCache>(kImages, kImages * kImageBytes / 2 + kImageBytes / 2);
  const CachedImages cached(set, cache, 0);
  Image buffer;
  for (const int pass : {1, 2, 3}) {
    set->reads = 0;
    for (std::int64_t i = 0; i < kImages; ++i) cached.read((7 * i + pass) % kImages, buffer, kPart);
    EXPECT_EQ(set->reads, pass == 1 ? kImages : kImages / 2) << "pass " << pass;
    EXPECT_EQ(cache->use().images, kImages / 2);
  }
  EXPECT_FALSE(cache->has_room());
}

TEST(ImageCache, PassesOverDamageBeyondThePartAsTheSetDoes) {
  const auto set = std::make_shared<CountedSet>();
  set->damaged = 7;
  const CachedImages cached(set, std::make_shared<ImageCache>(kImages, kImages * kImageBytes), 0);
  EXPECT_EQ(all_pixels(cached), all_pixels(*set));
  Image buffer;
  EXPECT_EQ(test::message_of(ErrorKind::data, [&] { cached.read(7, buffer); }), "image 7 is damaged beyond its part");
}

TEST(ImageCache, ThreadsKeepEveryImageOnce) {
  const auto set = std::make_shared<CountedSet>();
  const auto expected = all_pixels(*set);
  const auto cache = std::make_shared<ImageCache>(kImages, kImages * kImageBytes);
  const CachedImages cached(set, cache, 0);
  std::vector<std::thread> threads;
  std::atomic<int> same = 0;
  for (int t = 0; t < 6; ++t) threads.emplace_back([&] { same += all_pixels(cached) == expected; });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(same, 6);
  EXPECT_EQ(cache->use().images, kImages);
  EXPECT_EQ(cache->use().bytes, kImages * kImageBytes);
}

TEST(ImageCache, IsSharedByTheProcessesOfAMachine) {
  const auto set = std::make_shared<CountedSet>();
  const auto expected = all_pixels(*set);
  const auto cache = std::make_shared<ImageCache>(kImages, kImages * kImageBytes);
  const std::string handle = cache->handle();
  EXPECT_EQ(in_another_process([&] {
              const CachedImages cached(set, std::make_shared<ImageCache>(handle), 0);
              return all_pixels(cached) == expected;
            }),
            0);
  set->reads = 0;
  EXPECT_EQ(all_pixels(CachedImages(set, cache, 0)), expected);
  EXPECT_EQ(set->reads, 0) << "the other process has kept them all";
  const std::string other = handle.substr(0, handle.find(' ')) + " 1";
  EXPECT_TRUE(test::contains(test::message_of(ErrorKind::config, [&] { ImageCache{other}; }), "--cache-gb 0"));
  EXPECT_TRUE(test::contains(test::message_of(ErrorKind::config, [] { ImageCache{"/proc/self/fd/9999 1"}; }),
                             "cannot see each other's memory"));
}

// The half of a gigabyte that a machine keeps for everything else is not there.
TEST(ImageCache, StopsWhereTheMachineIsShortOfMemory) {
#if defined(AB_SANITIZED)
  GTEST_SKIP() << "sanitizers take more memory than the limit";
#endif
  const auto set = std::make_shared<CountedSet>();
  const auto cache = std::make_shared<ImageCache>(kImages, std::int64_t{1} << 28);
  EXPECT_EQ(in_another_process([&] {
              const rlimit limit{400 << 20, 400 << 20};
              ::setrlimit(RLIMIT_DATA, &limit);
              const CachedImages cached(set, cache, 0);
              Image large;
              large.resize(5000, 5000);
              cache->keep(3, large.view());  // beyond what was taken from the system
              return !cache->has_room() && cache->find(3).pixels == nullptr;
            }),
            0);
}

TEST(ImageCache, RefusesMoreThanTheSystemMaps) {
  EXPECT_TRUE(test::contains(
      test::message_of(ErrorKind::config, [] { ImageCache(1, std::numeric_limits<std::int64_t>::max() / 2); }),
      "cache of images"));
}

}  // namespace
}  // namespace ab
