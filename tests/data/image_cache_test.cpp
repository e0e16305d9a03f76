// SPDX-License-Identifier: MIT
#include "data/image_cache.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <thread>

#include "data/decode.h"
#include "engine/core/machine.h"
#include "tests/error_message.h"
#include "tests/random_images.h"

namespace ab {
namespace {

constexpr std::int64_t kImages = 40, kDamaged = 7;
constexpr int kHeight = 40, kWidth = 30;
constexpr std::int64_t kImageBytes = std::int64_t{3} * kHeight * kWidth;
const ChoosePart kPart = [](int height, int width) { return Box{height / 8, width / 3, height / 4, width / 2}; };
constexpr std::int64_t kPartBytes = std::int64_t{3} * (kHeight / 4) * (kWidth / 2);

/// A set of JPEG files in memory that counts how often one is read. One of them is cut where only its last rows are.
class CountedSet final : public Dataset {
 public:
  CountedSet() {
    const ImageSet images = test::random_set(kImages, kHeight, kWidth);
    name = "counted", count = kImages, classes = images.classes, height = kHeight, width = kWidth;
    for (std::int64_t i = 0; i < kImages; ++i)
      files_.push_back(encode_jpeg({images.image(i).data(), kHeight, kWidth}, 90, ""));
    whole_ = files_[kDamaged];
    files_[kDamaged].erase(files_[kDamaged].end() - 40, files_[kDamaged].end() - 2);
  }
  void mend() { files_[kDamaged] = whole_; }
  int label(std::int64_t i) const override { return static_cast<int>(i); }
  std::vector<std::uint8_t> file(std::int64_t i) const override {
    ++reads;
    return files_[static_cast<std::size_t>(i)];
  }
  ImageView read(std::int64_t i, Image& buffer, const ChoosePart& part = {}) const override {
    return decode_image(file(i), image_name(i), buffer, part);
  }
  bool reads_files() const override { return true; }

  std::int64_t bytes_of_files() const {
    std::int64_t bytes = 0;
    for (const auto& file : files_) bytes += std::ssize(file);
    return bytes;
  }

  mutable std::atomic<int> reads = 0;

 private:
  std::vector<std::vector<std::uint8_t>> files_;
  std::vector<std::uint8_t> whole_;
};

std::shared_ptr<ImageCache> memory_for(std::int64_t images) {
  return std::make_shared<ImageCache>(2 * kImages, CacheRoom{images * kImageBytes});
}

std::vector<std::uint8_t> pixels_of(const ImageView& image) {
  std::vector<std::uint8_t> pixels;
  for (int y = 0; y < image.height; ++y) pixels.insert(pixels.end(), image.row(y), image.row(y) + image.row_bytes());
  return pixels;
}

/// The pixels of every image, and of a part of it.
std::vector<std::vector<std::uint8_t>> all_pixels(const Dataset& set) {
  std::vector<std::vector<std::uint8_t>> pixels;
  Image buffer;
  for (std::int64_t i = 0; i < set.count; ++i)
    for (const ChoosePart& part : {ChoosePart{}, kPart}) {
      if (!part && i == kDamaged) continue;
      pixels.push_back(pixels_of(set.read(i, buffer, part)));
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
  const auto cache = memory_for(kImages);
  const CachedImages cached(set, cache, kImages);
  EXPECT_EQ(cached.fingerprint(), set->fingerprint());
  EXPECT_EQ(cached.label(5), set->label(5));
  set->reads = 0;
  for (const int pass : {1, 2, 3}) {
    EXPECT_EQ(all_pixels(cached), expected) << "pass " << pass;
    EXPECT_EQ(set->reads, kImages - 1 + 2 * pass) << "of the damaged one once in vain, and once a part";
  }
  const ImageCache::Use use = cache->use();
  EXPECT_EQ(use.images, kImages - 1);
  EXPECT_EQ(use.bytes, (kImages - 1) * kImageBytes);
  EXPECT_EQ(use.from_files, kImages - 1 + 3);
  EXPECT_EQ(use.from_files + use.from_memory, 3 * std::ssize(expected));
  EXPECT_EQ(cache->find(0).pixels, nullptr) << "numbers of another part of the data";
}

TEST(ImageCache, KeepsAsManyAsFitAndDropsNone) {
  const auto set = std::make_shared<CountedSet>();
  const auto cache = std::make_shared<ImageCache>(kImages, CacheRoom{kImages * kImageBytes / 2 + kImageBytes / 2});
  const CachedImages cached(set, cache, 0);
  Image buffer;
  for (const int pass : {1, 2, 3}) {
    set->reads = 0;
    for (std::int64_t i = 0; i < kImages; ++i)
      if (const std::int64_t image = (3 * i + pass) % kImages; image != kDamaged) cached.read(image, buffer, kPart);
    EXPECT_EQ(set->reads, pass == 1 ? kImages - 1 : kImages / 2 - 1) << "pass " << pass;
    EXPECT_EQ(cache->use().images, kImages / 2);
  }
  EXPECT_FALSE(cache->has_room());
}

TEST(ImageCache, PassesOverDamageBeyondThePartAsTheSetDoes) {
  const auto set = std::make_shared<CountedSet>();
  const CachedImages cached(set, memory_for(kImages), 0);
  Image buffer, expected;
  EXPECT_EQ(pixels_of(cached.read(kDamaged, buffer, kPart)), pixels_of(set->read(kDamaged, expected, kPart)));
  EXPECT_TRUE(
      test::message_of(ErrorKind::data, [&] { cached.read(kDamaged, buffer); }).starts_with("counted: image 7"));
}

TEST(ImageCache, ThreadsKeepEveryImageOnce) {
  const auto set = std::make_shared<CountedSet>();
  const auto expected = all_pixels(*set);
  const auto cache = memory_for(kImages);
  const CachedImages cached(set, cache, 0);
  std::vector<std::thread> threads;
  std::atomic<int> same = 0;
  for (int t = 0; t < 6; ++t) threads.emplace_back([&] { same += all_pixels(cached) == expected; });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(same, 6);
  EXPECT_EQ(cache->use().images, kImages - 1);
  EXPECT_EQ(cache->use().bytes, (kImages - 1) * kImageBytes);
}

TEST(ImageCache, IsSharedByTheProcessesOfAMachine) {
  const auto set = std::make_shared<CountedSet>();
  const auto expected = all_pixels(*set);
  const auto cache = memory_for(kImages);
  const std::string handle = cache->handle();
  EXPECT_EQ(in_another_process([&] {
              const CachedImages cached(set, std::make_shared<ImageCache>(handle), 0);
              return all_pixels(cached) == expected;
            }),
            0);
  set->reads = 0;
  EXPECT_EQ(all_pixels(CachedImages(set, cache, 0)), expected);
  EXPECT_EQ(set->reads, 2) << "the other process has kept all but one";
  const std::string other = handle.substr(0, handle.find(' ')) + " 1";
  EXPECT_TRUE(test::contains(test::message_of(ErrorKind::config, [&] { ImageCache{other}; }), "leave --cache-gb"));
  EXPECT_TRUE(test::contains(test::message_of(ErrorKind::config, [] { ImageCache{"/proc/self/fd/9999 1"}; }),
                             "cannot see each other's memory"));
}

// The half of a gigabyte that a machine keeps for everything else is not there.
TEST(ImageCache, StopsWhereTheMachineIsShortOfMemory) {
#if defined(AB_SANITIZED)
  GTEST_SKIP() << "sanitizers take more memory than the limit";
#endif
  const auto set = std::make_shared<CountedSet>();
  const auto cache = std::make_shared<ImageCache>(kImages, CacheRoom{std::int64_t{1} << 28});
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

// ---- On a disk ----

struct DiskCache : testing::Test {
  DiskCache() {
    std::string pattern = (std::filesystem::temp_directory_path() / "abtrain-disk-cache-test-XXXXXX").string();
    folder_ = std::filesystem::path(::mkdtemp(pattern.data())) / "cache";
  }
  ~DiskCache() override { std::filesystem::remove_all(folder_.parent_path()); }
  /// Of a job that begins now.
  std::shared_ptr<ImageCache> begin(std::int64_t disk_bytes = 0) const {
    return std::make_shared<ImageCache>(kImages, CacheRoom{.disk = folder_.string(), .disk_bytes = disk_bytes}, "set");
  }
  /// Reads a part of every image.
  std::vector<std::vector<std::uint8_t>> parts(const std::shared_ptr<ImageCache>& cache) const {
    const CachedImages cached(set_, cache, 0);
    std::vector<std::vector<std::uint8_t>> pixels;
    for (std::int64_t i = 0; i < kImages; ++i) {
      Image buffer;
      pixels.push_back(pixels_of(cached.read(i, buffer, kPart)));
    }
    return pixels;
  }
  std::vector<std::vector<std::uint8_t>> expected() const { return parts(memory_for(0)); }
  void damage(const char* file, std::int64_t offset) const {
    std::fstream stream(folder_ / file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekp(offset).put('?').put('!');
  }

  const std::shared_ptr<CountedSet> set_ = std::make_shared<CountedSet>();
  std::filesystem::path folder_;
};

TEST_F(DiskCache, TheNextJobReadsNoFileAgain) {
  const auto pixels = expected();
  set_->reads = 0;
  {
    const auto cache = begin();
    for (const int pass : {1, 2}) {
      EXPECT_EQ(parts(cache), pixels) << "pass " << pass;
      EXPECT_EQ(set_->reads, kImages);
    }
    EXPECT_EQ(cache->use().files, kImages);
    EXPECT_EQ(cache->use().file_bytes, set_->bytes_of_files());
    EXPECT_EQ(cache->use().from_disk, kImages);
  }
  const auto cache = begin();
  EXPECT_EQ(cache->use().files, kImages);
  EXPECT_EQ(parts(cache), pixels);
  EXPECT_EQ(set_->reads, kImages);
}

TEST_F(DiskCache, KeepsAsManyAsMayBe) {
  const auto cache = begin(set_->bytes_of_files() / 2);
  EXPECT_EQ(parts(cache), expected());
  const ImageCache::Use use = cache->use();
  EXPECT_LE(use.file_bytes, set_->bytes_of_files() / 2);
  EXPECT_NEAR(static_cast<double>(use.files), kImages / 2, 1);
  parts(cache);
  EXPECT_EQ(cache->use().from_disk, use.files);
}

// Of a copy, of the record of another, and of what a kill leaves: half of the last record.
TEST_F(DiskCache, ReadsDamagedCopiesFromTheirFiles) {
  const auto pixels = expected();
  parts(begin());
  damage("set.images", 1000);
  damage("set.index", 3 * 32 + 9);
  std::filesystem::resize_file(folder_ / "set.index", kImages * 32 - 10);
  set_->reads = 0;
  testing::internal::CaptureStderr();
  EXPECT_EQ(parts(begin()), pixels);
  EXPECT_TRUE(
      test::contains(testing::internal::GetCapturedStderr(), "a copy in the folder of --cache-disk is damaged"));
  EXPECT_EQ(set_->reads, 3);
  EXPECT_EQ(parts(begin()), pixels);
  EXPECT_EQ(set_->reads, 3) << "they have been copied again";
}

TEST_F(DiskCache, AFileThatWasMendedIsReadAgain) {
  const auto cache = begin();
  parts(cache);  // of the damaged file a part that is not
  set_->mend();
  Image buffer, expected;
  testing::internal::CaptureStderr();
  EXPECT_EQ(pixels_of(CachedImages(set_, cache, 0).read(kDamaged, buffer)), pixels_of(set_->read(kDamaged, expected)));
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "") << "the disk is well";
  set_->reads = 0;
  CachedImages(set_, cache, 0).read(kDamaged, buffer);
  EXPECT_EQ(set_->reads, 0) << "the copy is of the mended file";
}

TEST_F(DiskCache, ThreadsCopyEveryFileOnceAndFindIt) {
  const auto pixels = expected();
  const auto cache = begin();
  std::vector<std::thread> threads;
  std::atomic<int> same = 0;
  for (int t = 0; t < 6; ++t) threads.emplace_back([&] { same += parts(cache) == pixels && parts(cache) == pixels; });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(same, 6);
  EXPECT_EQ(cache->use().files, kImages);
  EXPECT_EQ(cache->use().file_bytes, set_->bytes_of_files());
}

TEST_F(DiskCache, OneJobAddsAtATime) {
  const auto first = begin();
  testing::internal::CaptureStderr();
  const auto second = begin();
  EXPECT_TRUE(test::contains(testing::internal::GetCapturedStderr(), "another run, or another node, adds to it"));
  parts(second);
  EXPECT_EQ(second->use().files, 0);
  parts(first);
  EXPECT_EQ(first->use().files, kImages);
}

TEST_F(DiskCache, AKilledJobLeavesItsCopiesAndNoLock) {
  EXPECT_EQ(in_another_process([&] {
              parts(begin());
              ::kill(::getpid(), SIGKILL);
              return true;
            }),
            100 + SIGKILL);
  const auto cache = begin();
  EXPECT_EQ(cache->use().files, kImages);
  set_->reads = 0;
  EXPECT_EQ(parts(cache), expected());
  EXPECT_EQ(set_->reads, kImages) << "by what is expected alone";
}

TEST_F(DiskCache, AFullDiskEndsWhatIsKept) {
  const auto pixels = expected();
  EXPECT_EQ(in_another_process([&] {
              ::signal(SIGXFSZ, SIG_IGN);  // a limit that acts as a full disk does
              const auto limit = static_cast<rlim_t>(set_->bytes_of_files() / 2);
              const rlimit half{limit, limit};
              ::setrlimit(RLIMIT_FSIZE, &half);
              const auto cache = begin(std::int64_t{1} << 40);
              return parts(cache) == pixels && parts(cache) == pixels && cache->use().files > 0 &&
                     cache->use().files < kImages && cache->use().from_disk == cache->use().files;
            }),
            0);
}

TEST_F(DiskCache, NamesAFolderThatCannotBeMade) {
  std::ofstream(folder_.string()) << "a file";
  EXPECT_TRUE(test::contains(test::message_of(ErrorKind::config, [&] { begin(); }), folder_.string()));
}

// ---- Among nodes ----

/// A node with a cache, as a process of its own has it.
struct CacheNode {
  CacheNode(std::int64_t number, std::int64_t room)
      : own(number), kept(std::make_shared<CachedImages>(set, cache = memory_for(room), 0)) {
    server = std::make_shared<ImageServer>(kToken, [kept = kept](std::int64_t i) {
      thread_local Image buffer;
      return kept->find(i, buffer);
    });
  }
  CachedImages images(const std::vector<const CacheNode*>& nodes) const {
    std::vector<HostPort> servers;
    for (const CacheNode* node : nodes) servers.push_back({"localhost", node->server->port()});
    return {set, cache, 0, {std::make_shared<ImageNodes>(servers, kToken), own, server}};
  }

  static constexpr std::uint64_t kToken = 12345;
  std::int64_t own;
  std::shared_ptr<CountedSet> set = std::make_shared<CountedSet>();
  std::shared_ptr<ImageCache> cache;
  std::shared_ptr<CachedImages> kept;
  std::shared_ptr<ImageServer> server;
};

TEST(CacheNodes, KeepTheSetTogether) {
  const CacheNode a(0, kImages / 2), b(1, kImages / 2);
  const CachedImages of_a = a.images({&a, &b}), of_b = b.images({&a, &b});
  const auto expected = all_pixels(CountedSet());
  for (const int pass : {1, 2}) {
    EXPECT_EQ(all_pixels(of_a), expected) << "pass " << pass;
    EXPECT_EQ(all_pixels(of_b), expected) << "pass " << pass;
  }
  const ImageCache::Use use = a.cache->use();
  EXPECT_EQ(use.images, kImages / 2);
  EXPECT_EQ(a.set->reads, kImages / 2 + 2) << "the damaged one, in each pass";
  EXPECT_EQ(use.from_nodes, 2 * (kImages - 2));
  EXPECT_EQ(use.bytes_from_nodes, use.from_nodes / 2 * (kImageBytes + kPartBytes)) << "whole images and parts of them";
}

TEST(CacheNodes, HalfOfTheMemoryGivesHalfOfTheImages) {
  const CacheNode a(0, kImages / 4), b(1, kImages / 4);
  const CachedImages of_a = a.images({&a, &b});
  Image buffer;
  for (int pass = 0; pass < 2; ++pass)
    for (std::int64_t i = 0; i < kImages; ++i) of_a.read(i, buffer, kPart);
  a.set->reads = b.set->reads = 0;
  for (std::int64_t i = 0; i < kImages; ++i) of_a.read(i, buffer, kPart);
  EXPECT_EQ(a.set->reads, kImages / 2);
  EXPECT_EQ(b.set->reads, 0);
}

TEST(CacheNodes, AreDoneWithoutWhenGoneOrStrange) {
  const CacheNode a(0, kImages);
  auto b = std::make_unique<CacheNode>(1, kImages);
  const CachedImages of_a = a.images({&a, b.get()});
  Image buffer, expected;
  of_a.read(1, buffer);
  b.reset();
  for (const std::int64_t i : {1, 3, 5}) {
    const ImageView image = of_a.read(i, buffer);
    a.set->read(i, expected);
    EXPECT_EQ(pixels_of(image), expected.pixels);
  }
  EXPECT_EQ(a.cache->use().images, 3) << "it keeps what the other would";
  testing::internal::CaptureStderr();
  ImageNodes nobody({{"localhost", 1}}, 1);
  EXPECT_EQ(nobody.fetch(0, 3, {}, buffer), ImageNodes::Answer::none);
  EXPECT_EQ(nobody.fetch(0, 4, {}, buffer), ImageNodes::Answer::none);
  EXPECT_TRUE(test::contains(testing::internal::GetCapturedStderr(), "localhost:1 keeps are read from their files"));
  ImageNodes of_another_job({{"localhost", a.server->port()}}, CacheNode::kToken + 1);
  EXPECT_EQ(of_another_job.fetch(0, 3, {}, buffer), ImageNodes::Answer::none);
}

// Half of a reply, and one of a size that no image has, are no damage of the image.
TEST(CacheNodes, BelieveNoNonsense) {
  for (const std::int32_t height : {20, -1, 1 << 30}) {
    HostPort at{"localhost", 0};
    const Socket listener = listen_at(at);
    std::thread strange([&] {
      Socket caller;
      while (!caller) caller = accept_from(listener);
      const std::array<std::int32_t, 2> size{height, 30};
      const auto soon = std::chrono::steady_clock::now() + std::chrono::seconds(5);
      std::array<std::int64_t, 2> token_and_number{};
      caller.read(token_and_number.data(), sizeof token_and_number, soon);
      caller.write(size.data(), sizeof size, soon);
    });
    testing::internal::CaptureStderr();
    ImageNodes nodes({at}, CacheNode::kToken);
    Image buffer;
    EXPECT_EQ(nodes.fetch(0, 3, {}, buffer), ImageNodes::Answer::none);
    strange.join();
    EXPECT_EQ(nodes.fetch(0, 3, {}, buffer), ImageNodes::Answer::none) << "it is not asked again at once";
    EXPECT_EQ(test::contains(testing::internal::GetCapturedStderr(), "makes no sense"), height != 20);
  }
}

TEST(CacheNodes, AreAskedForNoPartBeyondAnImage) {
  const CacheNode a(0, kImages);
  for (const Box& box : {Box{0, 0, kHeight, kWidth}, Box{1, 0, kHeight, kWidth}, Box{-1, 0, 2, 2}, Box{0, 0, 0, 2},
                         Box{0, 2, 2, std::numeric_limits<int>::max()}}) {
    const auto soon = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    std::string problem;
    const Socket caller = connect_to({"localhost", a.server->port()}, soon, problem);
    const std::int64_t number = 3;
    std::array<std::int32_t, 2> size{};
    std::uint8_t pixel = 0;
    caller.write(&CacheNode::kToken, sizeof CacheNode::kToken, soon);
    caller.write(&number, sizeof number, soon);
    ASSERT_EQ(caller.read(&size, sizeof size, soon), Socket::Result::done);
    EXPECT_EQ(size, (std::array{kHeight, kWidth}));
    caller.write(&box, sizeof box, soon);
    EXPECT_EQ(caller.read(&pixel, 1, soon) == Socket::Result::done, box == (Box{0, 0, kHeight, kWidth}));
  }
}

TEST(CacheNodes, LeaveBehindAReadThatHangs) {
  std::promise<void> end;
  auto server = std::make_unique<ImageServer>(1, [hangs = end.get_future().share()](std::int64_t) {
    hangs.wait();
    return ImageView{};
  });
  std::thread asks([port = server->port()] {
    ImageNodes nodes({{"localhost", port}}, 1);
    Image buffer;
    nodes.fetch(0, 3, {}, buffer);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  server.reset();
  end.set_value();
  asks.join();
}

TEST(ImageCache, RefusesMoreThanTheSystemMaps) {
  EXPECT_TRUE(test::contains(
      test::message_of(ErrorKind::config, [] { ImageCache(1, {std::numeric_limits<std::int64_t>::max() / 2}); }),
      "cache of images"));
}

}  // namespace
}  // namespace ab
