// SPDX-License-Identifier: MIT
//
// Packed sets and the indexes of archives: whole, interrupted, damaged and hostile. With ABTRAIN_IMAGENET_DIR, of real files too.
#include "data/pack.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "data/archive_index.h"
#include "data/datasets.h"
#include "data/decode.h"
#include "data/image_cache.h"
#include "data/image_files.h"
#include "data/loader.h"
#include "engine/core/atomic_file.h"
#include "engine/core/hash.h"
#include "tests/error_message.h"

namespace ab {
namespace {

namespace fs = std::filesystem;
using Bytes = std::vector<std::uint8_t>;
using test::contains;
using test::message_of;

std::string text_of(const fs::path& file) { return read_file(file.string(), ErrorKind::data); }

void write_text(const fs::path& file, const std::string& text) { std::ofstream(file, std::ios::binary) << text; }

/// The contents of all files in a folder by name.
std::map<std::string, std::string> all_of(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::directory_iterator(folder))
    files[entry.path().filename().string()] = text_of(entry.path());
  return files;
}

void shell(const std::string& command) { ASSERT_EQ(std::system(command.c_str()), 0) << command; }

void expect_same_images(const TrainAndTest& other, const TrainAndTest& expected) {
  EXPECT_EQ(other.fingerprint(), expected.fingerprint());
  EXPECT_EQ(other.contents(), expected.contents());
  for (const auto& [set, same] : {std::pair{other.train, expected.train}, std::pair{other.test, expected.test}}) {
    ASSERT_EQ(set->count, same->count);
    EXPECT_EQ(set->warnings, same->warnings);
    for (std::int64_t i = 0; i < same->count; ++i) {
      Image image, wanted;
      set->read(i, image), same->read(i, wanted);
      EXPECT_EQ(set->label(i), same->label(i));
      EXPECT_EQ(image.pixels, wanted.pixels);
    }
  }
}

class PackTest : public testing::Test {
 protected:
  PackTest() {
    folder_ = fs::path(testing::TempDir()) /
              fmt::format("abtrain_pack_{}", testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(folder_);
    for (int i = 0; i < 11; ++i)
      write_image(fmt::format("train/n0{}/{}.JPEG", i % 3, (i * 7) % 11), 20 + 3 * i, 60 - 2 * i);
    for (int i = 0; i < 4; ++i) write_image(fmt::format("val/n0{}/v{}.JPEG", i % 3, i), 30 + i, 40);
  }
  ~PackTest() override { fs::remove_all(folder_); }

  void write_image(const fs::path& name, int height, int width) {
    Image image;
    image.resize(height, width);
    for (std::size_t i = 0; i < image.pixels.size(); ++i)
      image.pixels[i] = static_cast<std::uint8_t>((i * 5 + i / 7 + static_cast<std::size_t>(height)) % 251);
    const Bytes bytes = encode_jpeg(image.view(), 80, "image");
    const fs::path file = folder_ / "from" / name;
    fs::create_directories(file.parent_path());
    write_text(file, {bytes.begin(), bytes.end()});
  }
  TrainAndTest source() const { return load_imagenet((folder_ / "from").string()); }
  /// Packs the source three images an archive.
  PackedBytes pack(const std::string& to, PackOptions options = {}) const {
    options.images_per_archive = 3;
    return pack_images(source(), (folder_ / to).string(), options);
  }
  TrainAndTest load(const std::string& name) const { return load_imagenet((folder_ / name).string()); }

  fs::path folder_;
};

TEST_F(PackTest, APackedSetIsTheSameSetAndUnpacksToTheSameFolders) {
  const PackedBytes bytes = pack("to");
  EXPECT_EQ(bytes.source, bytes.packed);
  EXPECT_GT(bytes.source, 15 * 500);
  EXPECT_EQ(all_of(folder_ / "to").size(), 2 * (4 + 2) + 1u);
  expect_same_images(load("to"), source());
  shell(fmt::format(
      "cd '{0}' && mkdir -p out/train out/val && for f in to/train-*.tar; do tar -C out/train -xf $f; done && "
      "for f in to/val-*.tar; do tar -C out/val -xf $f; done && diff -r out from && "
      "tar -tf to/train-00000.tar | grep -cx 'n0[012]/[0-9]*.JPEG' | grep -qx 3",
      folder_.string()));
  shell(fmt::format("rm '{}'/to/*.index", folder_.string()));
  expect_same_images(load("to"), source());
}

/// Of all images and labels of two epochs, by ranks that share a global batch of four, from which step on.
std::uint64_t hash_of_batches(const Dataset& set, int ranks, int threads, std::int64_t first = 0) {
  std::string images, labels;
  for (const std::int64_t epoch : {0, 1}) {
    std::vector<std::unique_ptr<Loader>> loaders;
    for (int rank = 0; rank < ranks; ++rank) {
      LoaderOptions options{.batch_size = 4 / ranks, .rank = rank, .world_size = ranks, .seed = 3, .image_size = 24};
      options.augmentation.rand_augment = 1;
      options.prefetch = threads == 0 ? 0 : 2, options.threads = std::max(threads, 1);
      loaders.push_back(std::make_unique<Loader>(set, options));
      loaders.back()->start_epoch(epoch, epoch == 0 ? first : 0);
    }
    for (std::int64_t step = epoch == 0 ? first : 0; step < loaders[0]->batches_per_epoch(); ++step)
      for (const auto& loader : loaders) {
        const std::optional<Batch> batch = loader->next();
        images.append(static_cast<const char*>(batch->images.raw()), batch->images.bytes());
        labels.append(static_cast<const char*>(batch->labels.raw()), batch->labels.bytes());
      }
  }
  images += labels;
  return hash64(images.data(), images.size());
}

TEST_F(PackTest, TwoEpochsOfBatchesAreTheSameFromEverywhere) {
  pack("packed");
  fs::create_directories(folder_ / "tar");
  for (const char* part : {"train", "val"})
    shell(fmt::format("tar -C '{0}/from/{1}' -cf '{0}/tar/{1}.tar' .", folder_.string(), part));
  const std::uint64_t expected = hash_of_batches(*source().train, 1, 0);
  const std::uint64_t expected_from_1 = hash_of_batches(*source().train, 1, 0, 1);
  EXPECT_NE(expected, expected_from_1);
  shell(
      fmt::format("mkdir '{0}/list' && cd '{0}/from' && for part in train val; do find $part -name '*.JPEG' -printf "
                  "'{0}/from/%p %h\\n' | sed \"s| $part/| |\" >'{0}'/list/$part.txt; done",
                  folder_.string()));
  for (const char* from : {"from", "tar", "packed", "list"})
    for (const int ranks : {1, 2, 4})
      for (const int threads : {1, 8}) {
        SCOPED_TRACE(fmt::format("{}, {} ranks, {} threads", from, ranks, threads));
        const auto train = load(from).train;
        EXPECT_EQ(hash_of_batches(*train, ranks, threads), expected);
        for (const CacheRoom& room : {CacheRoom{1 << 20}, CacheRoom{9000}, CacheRoom{0, (folder_ / "disk").string()},
                                      CacheRoom{9000, (folder_ / "disk").string()}}) {
          const CachedImages cached(train, std::make_shared<ImageCache>(train->count, room), 0);
          EXPECT_EQ(hash_of_batches(cached, ranks, threads), expected) << "cold, or found on the disk";
          EXPECT_EQ(hash_of_batches(cached, ranks, threads, 1), expected_from_1) << "warm";
        }
      }
}

TEST_F(PackTest, EveryWayToPackGivesEqualBytes) {
  pack("one");
  pack("four", {.threads = 4});
  const auto expected = all_of(folder_ / "one");
  EXPECT_EQ(all_of(folder_ / "four"), expected);
  const fs::path four = folder_ / "four";
  fs::remove(four / "train-00003.tar");
  fs::remove(four / "train-00001.index");
  fs::resize_file(four / "val-00000.tar", 700);
  write_text(four / "train-00003.tar.4711.0.tmp", "half");
  write_text(four / "packed.txt.4711.0.tmp", "half");
  const auto kept = fs::last_write_time(four / "train-00000.tar");
  EXPECT_EQ(pack("four", {.threads = 2}).packed, pack("one").packed);
  EXPECT_EQ(all_of(four), expected);
  EXPECT_EQ(fs::last_write_time(four / "train-00000.tar"), kept);
}

TEST_F(PackTest, ASecondPackingOfAFolderIsRefused) {
  std::string refusal;
  pack_images(source(), (folder_ / "to").string(), {}, [&](std::int64_t done, std::int64_t) {
    if (done == 1) refusal = test::message_of(ErrorKind::config, [&] { pack("to"); });
  });
  EXPECT_EQ(refusal, fmt::format("another process packs into {}; wait for it, or give another folder",
                                 (folder_ / "to").string()));
  expect_same_images(load("to"), source());
  pack_images(source(), (folder_ / "to").string(), {});
}

TEST_F(PackTest, NamesOfEveryLengthFitIntoAHeader) {
  for (const std::size_t length : {80, 95, 96, 97, 120, 200})
    write_image("train/n00/" + std::string(length, 'x') + ".JPEG", 8, 8);
  write_image("train/" + std::string(150, 'c') + "/" + std::string(90, 'y') + ".JPEG", 8, 8);
  write_image("train/" + std::string(160, 'c') + "/z.JPEG", 8, 8);
  pack("to");
  expect_same_images(load("to"), source());
  shell(fmt::format(
      "cd '{0}' && mkdir out && for f in to/train-*.tar; do tar -C out -xf $f; done && diff -r out from/train && "
      "rm to/*.index",
      folder_.string()));
  expect_same_images(load("to"), source());
}

TEST_F(PackTest, AnotherSetOrOtherOptionsAreRefused) {
  pack("to");
  const auto refused = [&](const PackOptions& options) {
    return message_of(ErrorKind::config, [&] { pack("to", options); });
  };
  const std::string words =
      "was packed from other images or with other options, as its packed.txt says; give a new folder";
  EXPECT_TRUE(contains(refused({.side = 32}), words));
  EXPECT_TRUE(contains(refused({.quality = 80}), words));
  write_image("val/n00/new.JPEG", 8, 8);
  EXPECT_TRUE(contains(refused({}), words));
  fs::create_directories(folder_ / "used/more");
  EXPECT_TRUE(contains(message_of(ErrorKind::config, [&] { pack("used"); }), "used holds 'more' and no packed set"));
}

TEST_F(PackTest, ASetThatIsNotWholeIsNotTrainedOn) {
  pack("to");
  fs::remove(folder_ / "to/train-00002.tar");
  EXPECT_TRUE(contains(
      message_of(ErrorKind::data, [&] { load("to"); }),
      "has 8 images of train and 4 of val, and by its packed.txt other numbers: it was not packed to its end"));
  shell(fmt::format("rm '{}'/to/val-*.tar", folder_.string()));
  EXPECT_TRUE(contains(message_of(ErrorKind::data, [&] { load("to"); }),
                       "has no archive of val: it was not packed to its end; run abtrain data pack again"));
  write_text(folder_ / "from/packed.txt", "of my suitcase");
  EXPECT_EQ(load("from").train->count, 11) << "another file of that name says nothing";
}

TEST_F(PackTest, ADamagedImageEndsItByName) {
  const fs::path file = folder_ / "from/train/n01/7.JPEG";
  fs::resize_file(file, fs::file_size(file) - 40);
  EXPECT_TRUE(message_of(ErrorKind::data, [&] { pack("to", {.threads = 2}); }).starts_with(file.string() + ": "));
  std::int64_t images = 0;
  for (const auto& [name, text] : all_of(folder_ / "to")) {
    EXPECT_FALSE(name.ends_with(".tmp"));
    if (name.ends_with(".index")) images += std::ranges::count(text, '\n') - 2;
  }
  EXPECT_LE(images, 12);
}

TEST_F(PackTest, NamesThatNoFolderCanHoldAreRefused) {
  write_image("train/n00/a\nb.JPEG", 8, 8);
  EXPECT_TRUE(contains(message_of(ErrorKind::data, [&] { pack("to"); }),
                       "cannot be packed: 'n00/a\\x0ab.JPEG' is no name of a file in the folder of its class"));
  const auto shards = [&](const std::string& commands) {
    const std::string where = (folder_ / "shards").string();
    shell(
        fmt::format("mkdir -p '{0}/a' && cd '{0}' && cp ../from/train/n00/0.JPEG p.JPEG && cp p.JPEG a/p.JPEG && "
                    "echo n1 | tee p.cls > a/p.cls && {1} && cp train-0.tar val-0.tar",
                    where, commands));
    return message_of(ErrorKind::data, [&] { pack_images(load("shards"), where + "/to", {}); });
  };
  EXPECT_TRUE(contains(shards("tar -cf train-0.tar a/p.JPEG a/p.cls"), "'n1/a/p.JPEG' is no name"));
  EXPECT_TRUE(contains(shards("echo .. > p.cls && tar -cf train-0.tar p.JPEG p.cls"), "'../p.JPEG' is no name"));
  EXPECT_TRUE(contains(shards("tar -cf train-0.tar p.JPEG p.cls && cp train-0.tar train-1.tar"),
                       "has two images of that name"));
}

TEST_F(PackTest, LongSidesAreScaledAndMakeAnotherSetOfTheSameNames) {
  const PackedBytes bytes = pack("to", {.side = 32, .quality = 70});
  EXPECT_LT(bytes.packed, bytes.source);
  const TrainAndTest small = load("to"), whole = source();
  EXPECT_EQ(small.fingerprint(), whole.fingerprint());
  EXPECT_NE(small.contents(), whole.contents()) << "a run cannot go on with it";
  for (std::int64_t i = 0; i < whole.train->count; ++i) {
    Image image, before;
    small.train->read(i, image), whole.train->read(i, before);
    const int shorter = std::min(before.height, before.width);
    if (shorter <= 32) EXPECT_EQ(image.pixels, before.pixels);
    else EXPECT_EQ(std::min(image.height, image.width), 32);
    EXPECT_NEAR(static_cast<double>(image.height) / image.width, static_cast<double>(before.height) / before.width,
                0.03);
  }
}

TEST_F(PackTest, AnIndexIsReadInPlaceOfHeaders) {
  pack("to");
  const fs::path archive = folder_ / "to/train-00001.tar", index = folder_ / "to/train-00001.index";
  const std::string whole = text_of(archive), lines = text_of(index);
  std::string damaged = whole;
  damaged[2] ^= 1;
  write_text(archive, damaged);
  expect_same_images(load("to"), source());
  fs::remove(index);
  EXPECT_TRUE(contains(message_of(ErrorKind::data, [&] { load("to"); }), "at byte 0: this is no header"));

  const auto warning_with = [&](const std::string& tar, const std::string& text) {
    write_text(archive, tar), write_text(index, text);
    const TrainAndTest data = load("to");
    EXPECT_EQ(data.fingerprint(), source().fingerprint());
    EXPECT_EQ(data.train->warnings.size(), 1u);
    return data.train->warnings.empty() ? "" : data.train->warnings[0];
  };
  const std::string stale = warning_with(whole + std::string(512, '\0'), lines);
  EXPECT_TRUE(
      contains(stale, "of 1 of 4 archives of train the index is not used: '" + index.string() +
                          "' is older than its archive, which has another size; abtrain data index writes it anew"));
  std::string flipped = lines;
  flipped[40] ^= 1;
  EXPECT_TRUE(contains(warning_with(whole, flipped), "is damaged, or no index"));
  EXPECT_TRUE(contains(warning_with(whole, ""), "is damaged, or no index"));
}

TEST_F(PackTest, BytesThatChangedAreSeenThoughTheyDecode) {
  pack("to");
  const TrainAndTest data = load("to");
  const std::string path = dynamic_cast<const ImageFiles&>(*data.train).path(4),
                    archive = fs::path(path).parent_path().parent_path();
  std::string problem;
  const auto members = *read_archive_index(archive, static_cast<std::int64_t>(fs::file_size(archive)), problem);
  const auto member = std::ranges::find_if(members, [&](const TarMember& m) { return path.ends_with(m.name); });
  std::string bytes = text_of(archive);
  bytes[static_cast<std::size_t>(member->offset + 13)] ^= 1;  // the density of pixels, which decoding ignores
  write_text(archive, bytes);
  Image image;
  decode_image(Bytes(bytes.begin() + member->offset, bytes.begin() + member->offset + member->bytes), "still", image);
  EXPECT_TRUE(message_of(ErrorKind::data, [&] {
                data.train->read(4, image);
              }).starts_with(path + ": its bytes are not those that the index"));
}

TEST(ArchiveIndex, IsReadAsItWasWrittenAndNoOtherWay) {
  const std::vector<TarMember> members{{{512, 100, 90, 0xfedcba9876543210u}, "a/b c.JPEG"}, {{1536, 0, 0, 1}, " "}};
  const std::string index = archive_index(members, 4096, "a.tar");
  const std::vector<TarMember> read = read_archive_index(index, 4096, "a.index");
  ASSERT_EQ(read.size(), 2u);
  EXPECT_EQ(archive_index(read, 4096, "a.tar"), index);
  for (std::size_t i = 0; i < index.size(); ++i) {
    std::string damaged = index;
    damaged[i] ^= 1;
    EXPECT_TRUE(
        contains(message_of(ErrorKind::data, [&] { read_archive_index(damaged, 4096, "a.index"); }), "'a.index' is"));
    message_of(ErrorKind::data, [&] { read_archive_index(index.substr(0, i), 4096, "a.index"); });
  }
  EXPECT_TRUE(contains(message_of(ErrorKind::data,
                                  [&] {
                                    archive_index({{{}, "a\nb"}}, 4096, "a.tar");
                                  }),
                       "'a\\x0ab' in 'a.tar' has a line break"));
}

TEST(ArchiveIndex, LeadsNowhereBeyondItsArchive) {
  const auto error = [](const std::string& lines) {
    const std::string text = "abtrain index 1 4096\n" + lines;
    const std::string sealed = text + fmt::format("{:016x}\n", hash64(text.data(), text.size()));
    return message_of(ErrorKind::data, [&] { read_archive_index(sealed, 4096, "a.index"); });
  };
  for (const char* line : {"4000 97 1 0 a\n", "4097 0 1 0 a\n", "1 9223372036854775807 1 0 a\n",
                           "9223372036854775807 9223372036854775807 1 0 a\n", "9223372036854775807 1 1 0 a\n"})
    EXPECT_TRUE(contains(error(line), "names a file beyond the end of its archive")) << line;
  std::string nine;
  for (int i = 0; i < 9; ++i) nine += "0 1 1 0 a\n";
  EXPECT_TRUE(contains(error(nine), "names more files than its archive can hold"));
  for (const char* line :
       {"-1 1 1 0 a\n", "0 -1 1 0 a\n", "0 1 -1 0 a\n", "0 1 1 -1 a\n", "9223372036854775808 1 1 0 a\n", "0 1 1 g a\n",
        "0 1 1 0 \n", "0 1 1 0\n", "0 1 1\n", "\n", "0 1 1 10000000000000000 a\n"})
    EXPECT_TRUE(contains(error(line), "is damaged, or no index")) << line;
}

TEST(PackedRealImages, AreTheSameSet) {
  const char* folder = std::getenv("ABTRAIN_IMAGENET_DIR");
  if (!folder) GTEST_SKIP() << "ABTRAIN_IMAGENET_DIR is not set";
  const TrainAndTest source = load_imagenet(folder);
  const fs::path to = fs::path(testing::TempDir()) / "abtrain_pack_real";
  fs::remove_all(to);
  const PackedBytes bytes = pack_images(source, to.string(), {.images_per_archive = 100, .threads = 2});
  EXPECT_NE(bytes.packed, bytes.source) << "restart markers, and other Huffman tables";
  EXPECT_NEAR(static_cast<double>(bytes.packed) / static_cast<double>(bytes.source), 1, 0.05);
  expect_same_images(load_imagenet(to.string()), source);
  fs::remove_all(to);
}

}  // namespace
}  // namespace ab
