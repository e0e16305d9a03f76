// SPDX-License-Identifier: MIT
//
// Data sets: CIFAR files made by hand, damaged in every way, and the real ones; the built-in set.
#include "data/datasets.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "data/shape_images.h"
#include "tests/error_message.h"

namespace ab {
namespace {

namespace fs = std::filesystem;
using test::contains;
using test::message_of;

/// A folder of its own for each test, removed at its end.
class DataTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "abtrain-data-test-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }

  fs::path folder_;
};

/// Byte `position` of the image of record `record` in handmade files: red, green and blue planes of 1024.
std::uint8_t made_byte(int record, int position) {
  return static_cast<std::uint8_t>(31 * record + 7 * position + position / 256);
}

void write_records(const fs::path& file, int records, const std::vector<int>& moduli) {
  fs::create_directories(file.parent_path());
  std::ofstream out(file, std::ios::binary);
  for (int r = 0; r < records; ++r) {
    for (int modulus : moduli) out.put(static_cast<char>(r % modulus));
    for (int i = 0; i < 3072; ++i) out.put(static_cast<char>(made_byte(r, i)));
  }
}

const std::vector<std::string> kTrainFiles{"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                           "data_batch_4.bin", "data_batch_5.bin"};

/// Five training files of 1 to 5 records and a test file of 12.
void write_cifar10(const fs::path& folder) {
  for (int i = 0; i < 5; ++i) write_records(folder / kTrainFiles[static_cast<std::size_t>(i)], i + 1, {10});
  write_records(folder / "test_batch.bin", 12, {10});
}

std::string cifar10_error(const fs::path& folder) {
  return message_of(ErrorKind::data, [&] { load_cifar10(folder.string()); });
}

/// Overwrites one byte of a file.
void poke(const fs::path& file, std::int64_t offset, int value) {
  std::fstream stream(file, std::ios::binary | std::ios::in | std::ios::out);
  stream.seekp(offset);
  stream.put(static_cast<char>(value));
}

// ---- CIFAR files ----

TEST_F(DataTest, ReadsHandmadeCifar10AsNhwc) {
  write_cifar10(folder_);
  const auto [train, test] = load_cifar10(folder_.string());
  EXPECT_EQ(train.name, "CIFAR-10");
  EXPECT_EQ(train.classes, 10);
  ASSERT_EQ(train.count, 1 + 2 + 3 + 4 + 5);
  ASSERT_EQ(test.count, 12);
  // The last training image is record 4 of the last file.
  EXPECT_EQ(train.labels.back(), 4);
  EXPECT_EQ(test.labels[11], 11 % 10);
  const auto image = train.image(14);
  for (int pixel = 0; pixel < 1024; ++pixel)
    for (int c = 0; c < 3; ++c)
      ASSERT_EQ(image[static_cast<std::size_t>(3 * pixel + c)], made_byte(4, 1024 * c + pixel)) << pixel << ' ' << c;
}

TEST_F(DataTest, ReadsOfficialSubfolders) {
  write_cifar10(folder_ / "cifar-10-batches-bin");
  EXPECT_EQ(load_cifar10(folder_.string()).train.count, 15);
  write_records(folder_ / "cifar-100-binary/train.bin", 120, {20, 100});
  write_records(folder_ / "cifar-100-binary/test.bin", 3, {20, 100});
  const auto [train, test] = load_cifar100(folder_.string());
  EXPECT_EQ(train.classes, 100);
  EXPECT_EQ(test.count, 3);
  EXPECT_EQ(train.labels[99], 99) << "the fine label, not the coarse one";
  EXPECT_EQ(train.image(99)[1], made_byte(99, 1024)) << "green of the first pixel";
}

TEST_F(DataTest, MissingFolderSaysWhatToDo) {
  const std::string missing = cifar10_error(folder_ / "nowhere");
  EXPECT_TRUE(contains(missing, "no folder '" + (folder_ / "nowhere").string() + "'"));
  EXPECT_TRUE(contains(missing, "apps/fetch_cifar10.sh"));
  EXPECT_TRUE(contains(missing, "--dataset synthetic"));
  EXPECT_TRUE(contains(cifar10_error(""), "no data folder was given"));
  const std::string empty = cifar10_error(folder_);
  EXPECT_TRUE(contains(empty, "looked for data_batch_1.bin in '" + folder_.string() + "'"));
  EXPECT_TRUE(contains(empty, "cifar-10-batches-bin"));
  EXPECT_TRUE(contains(empty, "apps/fetch_cifar10.sh"));
  EXPECT_TRUE(contains(message_of(ErrorKind::data, [&] { load_cifar100(folder_.string()); }), "cifar-100-binary"));
  fs::create_directory(folder_ / "cifar-10-batches-py");
  EXPECT_TRUE(contains(cifar10_error(folder_), "version for Python"));
}

TEST_F(DataTest, FileInPlaceOfFolder) {
  std::ofstream(folder_ / "file") << "x";
  EXPECT_TRUE(contains(cifar10_error(folder_ / "file"), "is not a folder"));
  write_cifar10(folder_);
  fs::remove(folder_ / "data_batch_2.bin");
  fs::create_directory(folder_ / "data_batch_2.bin");
  EXPECT_TRUE(contains(cifar10_error(folder_), "cannot read '" + (folder_ / "data_batch_2.bin").string()));
}

TEST_F(DataTest, MissingFileIsNamed) {
  for (const char* name : {"data_batch_3.bin", "test_batch.bin"}) {
    write_cifar10(folder_);
    fs::remove(folder_ / name);
    EXPECT_TRUE(contains(cifar10_error(folder_), "'" + (folder_ / name).string() + "' is missing"));
  }
}

TEST_F(DataTest, AFileThatIsThereTwiceAndOneTooManyAreTold) {
  write_cifar10(folder_);
  EXPECT_TRUE(load_cifar10(folder_.string()).train.warnings.empty());
  const auto copy = [&](const char* from, const char* to) {
    fs::copy_file(folder_ / from, folder_ / to, fs::copy_options::overwrite_existing);
  };
  copy("data_batch_2.bin", "data_batch_4.bin");
  copy("data_batch_5.bin", "test_batch.bin");
  copy("data_batch_1.bin", "data_batch_6.bin");
  const auto [train, test] = load_cifar10(folder_.string());
  ASSERT_EQ(train.warnings.size(), 2u);
  EXPECT_TRUE(contains(train.warnings[0], "data_batch_4.bin' holds the same images as data_batch_2.bin"));
  EXPECT_TRUE(contains(train.warnings[1], "data_batch_6.bin in '" + folder_.string() + "' is left out"));
  ASSERT_EQ(test.warnings.size(), 1u);
  EXPECT_TRUE(contains(test.warnings[0], "test_batch.bin' holds the same images as data_batch_5.bin"));
}

TEST_F(DataTest, WrongSizesAreRefused) {
  for (int size : {0, 1, 3072, 3074, 2 * 3073 - 1}) {
    write_cifar10(folder_);
    fs::resize_file(folder_ / "data_batch_4.bin", static_cast<std::uintmax_t>(size));
    const std::string message = cifar10_error(folder_);
    EXPECT_TRUE(contains(message, (folder_ / "data_batch_4.bin").string()));
    EXPECT_TRUE(contains(message, "3073"));
    EXPECT_TRUE(contains(message, size ? fmt::format("has {} bytes", size) : "is empty"));
  }
}

TEST_F(DataTest, LabelOutOfRangeNamesFileAndRecord) {
  write_cifar10(folder_);
  poke(folder_ / "data_batch_5.bin", 3 * 3073, 10);
  const std::string message = cifar10_error(folder_);
  EXPECT_TRUE(contains(message, "record 3 of '" + (folder_ / "data_batch_5.bin").string()));
  EXPECT_TRUE(contains(message, "label 10, expected 0 to 9"));
  for (int byte : {0, 1}) {
    write_records(folder_ / "train.bin", 4, {20, 100});
    write_records(folder_ / "test.bin", 4, {20, 100});
    poke(folder_ / "test.bin", 2 * 3074 + byte, 200);
    EXPECT_TRUE(
        contains(message_of(ErrorKind::data, [&] { load_cifar100(folder_.string()); }),
                 byte == 0 ? "the coarse label 200, expected 0 to 19" : "the fine label 200, expected 0 to 99"));
  }
}

TEST(RealCifar10, HasTheKnownContents) {
  const char* folder = std::getenv("ABTRAIN_DATA_DIR");
  if (!folder) GTEST_SKIP() << "ABTRAIN_DATA_DIR is not set; apps/fetch_cifar10.sh downloads CIFAR-10";
  const auto [train, test] = load_cifar10(folder);
  ASSERT_EQ(train.count, 50000);
  ASSERT_EQ(test.count, 10000);
  for (std::uint16_t label = 0; label < 10; ++label) {
    EXPECT_EQ(std::count(train.labels.begin(), train.labels.end(), label), 5000);
    EXPECT_EQ(std::count(test.labels.begin(), test.labels.end(), label), 1000);
  }
  EXPECT_EQ(train.labels[0], 6) << "the first image is a frog";
  // The channel means that every recipe quotes hold only if planes, rows and channels are where they belong.
  const double published[3] = {0.4914, 0.4822, 0.4465};
  for (std::size_t c = 0; c < 3; ++c) {
    double sum = 0;
    for (std::size_t i = c; i < train.pixels.size(); i += 3) sum += train.pixels[i];
    EXPECT_NEAR(sum / 255 / (50000.0 * 1024), published[c], 1e-4);
  }
}

TEST_F(DataTest, FirstImagesKeepsTheFront) {
  write_cifar10(folder_);
  const ImageSet all = load_cifar10(folder_.string()).train;
  EXPECT_EQ(first_images(all, 0).count, 15);
  EXPECT_EQ(first_images(all, 16).count, 15);
  const ImageSet two = first_images(all, 2);
  EXPECT_EQ(two.count, 2);
  EXPECT_EQ(two.labels, (std::vector<std::uint16_t>{0, 0}));
  EXPECT_EQ(two.pixels.size(), 2u * 3072u);
  EXPECT_TRUE(std::equal(two.pixels.begin(), two.pixels.end(), all.pixels.begin()));
}

// ---- The built-in set ----

/// FNV-1a over pictures 0 to 19.
std::uint64_t hash_of_pictures(std::uint64_t seed, Split split) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  std::array<std::uint8_t, kShapeImageBytes> planes;
  for (std::int64_t index = 0; index < 20; ++index) {
    draw_shape_image(seed, split, index, planes);
    for (std::uint8_t byte : planes) hash = (hash ^ byte) * 0x100000001b3u;
  }
  return hash;
}

TEST(Synthetic, PicturesNeverChange) {
  // A change here means that results on the old pictures cannot be compared any more: raise kFormatVersion.
  EXPECT_EQ(hash_of_pictures(0, Split::train), 16973761973793555941u);
  EXPECT_EQ(hash_of_pictures(0, Split::test), 8886347819710113206u);
  EXPECT_EQ(hash_of_pictures(1, Split::train), 5934019282091223451u);
}

std::string bytes_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST_F(DataTest, SyntheticSetIsWrittenOnceAndReadAsCifar10) {
  const SyntheticOptions options{.train_count = 103, .test_count = 30, .seed = 4};
  const fs::path set = ensure_synthetic_cifar10(options, (folder_ / "new/cache").string());
  EXPECT_EQ(set, folder_ / "new/cache/synthetic-v1-103-30-seed4");
  const auto [train, test] = load_cifar10(set.string());
  ASSERT_EQ(train.count, 103);
  ASSERT_EQ(test.count, 30);
  std::array<std::uint8_t, kShapeImageBytes> planes;
  for (std::int64_t index : {0, 57, 102}) {
    draw_shape_image(4, Split::train, index, planes);
    EXPECT_EQ(train.labels[static_cast<std::size_t>(index)], index % 10);
    for (std::size_t i = 0; i < 1024; ++i)
      for (std::size_t c = 0; c < 3; ++c) ASSERT_EQ(train.image(index)[3 * i + c], planes[1024 * c + i]);
  }
  EXPECT_EQ(bytes_of(set / "batches.meta.txt").substr(0, 10), "disc\nring\n");
  const auto written = fs::last_write_time(set / "test_batch.bin");
  EXPECT_EQ(ensure_synthetic_cifar10(options, (folder_ / "new/cache").string()), set.string());
  EXPECT_EQ(fs::last_write_time(set / "test_batch.bin"), written);
}

TEST_F(DataTest, SyntheticTestPicturesDoNotDependOnTheCounts) {
  const fs::path few = ensure_synthetic_cifar10({.train_count = 5, .test_count = 8}, folder_.string());
  const fs::path more = ensure_synthetic_cifar10({.train_count = 50, .test_count = 12}, folder_.string());
  const std::string short_file = bytes_of(few / "test_batch.bin");
  EXPECT_EQ(short_file.size(), 8u * 3073u);
  EXPECT_EQ(short_file, bytes_of(more / "test_batch.bin").substr(0, short_file.size()));
  EXPECT_NE(short_file.substr(0, 3073), bytes_of(few / "data_batch_1.bin").substr(0, 3073));
}

TEST_F(DataTest, SyntheticSetSurvivesARace) {
  std::vector<std::thread> racers;
  for (int i = 0; i < 4; ++i)
    racers.emplace_back([&] {
      const auto set = ensure_synthetic_cifar10({.train_count = 50, .test_count = 10}, folder_.string());
      EXPECT_EQ(load_cifar10(set).train.count, 50);
    });
  for (std::thread& racer : racers) racer.join();
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator{}), 1) << "temporary folders remain";
}

TEST_F(DataTest, SyntheticSetReportsWhatIsWrong) {
  const auto error_of = [&](const SyntheticOptions& options, const fs::path& root) {
    return message_of(ErrorKind::data, [&] { ensure_synthetic_cifar10(options, root.string()); });
  };
  std::ofstream(folder_ / "file") << "x";
  EXPECT_TRUE(contains(error_of({.train_count = 5}, folder_ / "file/cache"),
                       "cannot create '" + (folder_ / "file/cache").string()));
  const SyntheticOptions options{.train_count = 10, .test_count = 2};
  const fs::path set = ensure_synthetic_cifar10(options, folder_.string());
  fs::resize_file(set / "data_batch_2.bin", 3073);
  EXPECT_TRUE(contains(error_of(options, folder_), "has 3073 bytes, expected 6146; delete the folder"));
  fs::remove(set / "data_batch_2.bin");
  EXPECT_TRUE(contains(error_of(options, folder_), "delete the folder"));
}

}  // namespace
}  // namespace ab
