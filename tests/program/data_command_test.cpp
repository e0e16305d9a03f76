// SPDX-License-Identifier: MIT
//
// abtrain data: packs, checks and indexes images as a user has it do so.
#include <csignal>
#include <fstream>

#include "tests/golden/fixtures.h"
#include "tests/program_test.h"

namespace ab {
namespace {

namespace fs = std::filesystem;
using test::Outcome;

class DataCommandTest : public test::ProgramTest {
 protected:
  DataCommandTest() {
    const TensorFile fixtures = golden::read_fixtures("images.safetensors");
    std::string image;
    for (const double byte : golden::Case(fixtures, "decode/jpeg_444").tensor("file").to_doubles())
      image += static_cast<char>(static_cast<unsigned char>(byte));
    for (const char* name :
         {"train/cat/a", "train/cat/b", "train/dog/c", "train/dog/stalled", "val/cat/a", "val/dog/b"}) {
      const fs::path file = path(fmt::format("from/{}.jpg", name));
      fs::create_directories(file.parent_path());
      std::ofstream(file, std::ios::binary) << image;
    }
  }
  Outcome pack(const std::string& to, const std::string& launcher = "") const {
    return run(fmt::format("data pack {} {} --threads 2", path("from"), path(to)), launcher);
  }
};

TEST_F(DataCommandTest, PackedImagesAreReadAndVerified) {
  const Outcome packed = pack("to");
  EXPECT_EQ(packed.exit_code, 0) << packed.err;
  EXPECT_TRUE(test::contains(packed.out, "to: 4 images of train, 2 of val, ")) << packed.out;
  EXPECT_EQ(packed.err, "");
  const Outcome verified = run("data verify " + path("to"));
  EXPECT_EQ(verified.out, "4 images of train, 2 of val: 0 bad\n") << verified.err;
  EXPECT_EQ(verified.exit_code, 0);
  const Outcome scaled = run(fmt::format("data pack {} {} --side 8 --quality 50", path("to"), path("small")));
  EXPECT_EQ(scaled.exit_code, 0) << scaled.err;
  EXPECT_LT(fs::file_size(path("small/train-00000.tar")), fs::file_size(path("to/train-00000.tar")));
}

TEST_F(DataCommandTest, BenchTellsHowManyImagesASecondTrainingWouldGet) {
  const Outcome timed = run("data bench " + path("from") + " --threads 1");
  EXPECT_EQ(timed.exit_code, 0) << timed.err;
  EXPECT_TRUE(test::contains(timed.out, " images/s by 1 thread: read, decoded, cropped to 224 pixels")) << timed.out;
  EXPECT_TRUE(test::contains(timed.out, "\n10000 images/s take "));
}

TEST_F(DataCommandTest, VerifyNamesEveryBadFile) {
  ASSERT_EQ(pack("to").exit_code, 0);
  std::string bytes = read_file(path("to/train-00000.tar"), ErrorKind::data);
  bytes[bytes.find("dog/c.jpg") + 512 + 13] ^= 1;
  std::ofstream(path("to/train-00000.tar"), std::ios::binary) << bytes;
  std::ofstream(path("from/val/dog/b.jpg")) << "text";
  const Outcome packed = run("data verify " + path("to")), folders = run("data verify " + path("from"));
  EXPECT_EQ(packed.exit_code, 3);
  EXPECT_TRUE(packed.out.starts_with(path("to/train-00000.tar/dog/c.jpg: "))) << packed.out;
  EXPECT_TRUE(packed.out.ends_with("\n4 images of train, 2 of val: 1 bad\n")) << packed.out;
  EXPECT_EQ(folders.exit_code, 3);
  EXPECT_TRUE(folders.out.starts_with(path("from/val/dog/b.jpg: "))) << folders.out;
  EXPECT_EQ(std::count(folders.out.begin(), folders.out.end(), '\n'), 2) << folders.out;
}

TEST_F(DataCommandTest, AKilledPackGoesOnToTheSameBytes) {
  ASSERT_EQ(pack("whole").exit_code, 0);
  const Outcome killed = pack("part",
                              "timeout -s KILL 5 env ASAN_OPTIONS=$ASAN_OPTIONS:verify_asan_link_order=0 "
                              "LD_PRELOAD=" AB_STALLED_FILES);
  EXPECT_EQ(killed.exit_code, 128 + SIGKILL) << killed.err;
  const std::string same = fmt::format("diff -r {} {}", path("whole"), path("part"));
  const Outcome halfway = run_command(same);
  EXPECT_TRUE(test::contains(halfway.out, "whole: train-00000.tar\n") &&
              test::contains(halfway.out, "part: train-00000.tar."))
      << halfway.out;
  EXPECT_FALSE(test::contains(halfway.out, "val-")) << halfway.out;
  ASSERT_EQ(pack("part").exit_code, 0);
  EXPECT_EQ(run_command(same).out, "");
}

TEST_F(DataCommandTest, AFullDiskIsOneSentenceAndLeavesNoHalf) {
  const Outcome full = pack("to", "bash -c 'ulimit -f 1; exec \"$@\"' bash");
  EXPECT_EQ(full.exit_code, 4) << full.err;
  EXPECT_TRUE(full.err.starts_with("abtrain: cannot write " + path("to/"))) << full.err;
  EXPECT_EQ(run_command("ls " + path("to")).out, "packed.txt\n");
}

TEST_F(DataCommandTest, ArchivesOfAllKindsGetTheirIndex) {
  const std::string from = path("from");
  const auto archives = [&](const std::string& commands) {
    const std::string where = path("archives");
    const Outcome made = run_command(fmt::format("rm -rf {0} && mkdir {0} && cd {1} && {2}", where, from, commands));
    EXPECT_EQ(made.exit_code, 0) << made.err;
    const Outcome first = run("data index " + where), second = run("data index " + where);
    EXPECT_EQ(first.exit_code, 0) << first.err;
    EXPECT_TRUE(test::contains(second.out, "archives: 0 of 2 archives got a new index")) << second.out;
    const Outcome verified = run("data verify " + where);
    EXPECT_EQ(verified.exit_code, 0) << verified.out << verified.err;
    EXPECT_EQ(verified.err, "");
    return first.out;
  };
  const std::string two = path("archives") + ": 2 of 2 archives got a new index\n";
  EXPECT_EQ(archives("tar -cf ../archives/train.tar train && tar -cf ../archives/val.tar val"), two);
  EXPECT_EQ(
      archives(
          "cd train && for c in cat dog; do tar -C $c -cf $c.tar . ; done && "
          "tar -cf ../../archives/ILSVRC2012_img_train.tar cat.tar dog.tar && tar -cf ../../archives/val.tar -C ../val ."),
      two);
  EXPECT_EQ(
      archives(
          "mkdir wds && cd wds && cp ../train/cat/?.jpg ../train/dog/c.jpg . && echo cat | tee a.cls > b.cls && echo dog > c.cls && "
          "tar -cf ../../archives/train-0.tar * && tar -cf ../../archives/val-0.tar *"),
      two);
  expect_failure("data index " + from, 3, "holds no archives, such as train.tar; only these have an index");
}

TEST_F(DataCommandTest, WordsThatDoNotFitAreRefused) {
  expect_failure("data", 2, "ACTION");
  expect_failure("data pick a b", 2, "ACTION");
  expect_failure("data pack " + path("from"), 2,
                 "abtrain data pack takes two folders: FROM, which has the images, and TO");
  expect_failure("data verify a b", 2, "abtrain data verify takes one folder: that of train and val");
  expect_failure("data index a --side 8", 2, "--side is a flag of abtrain data pack alone");
  expect_failure("data pack a b --quality 8", 2, "--side");
  expect_failure("data pack a b --side 8 --quality 101", 2, "--quality");
  expect_failure("data verify " + path("none"), 3, "there is no folder");
  expect_failure(fmt::format("data pack {0} {0}", path("from")), 2, "from holds 'train' and no packed set");
  for (const char* within : {"train/packed", "val", "val/../train/./new"})
    expect_failure(fmt::format("data pack {0} {0}/{1}", path("from"), within), 2,
                   "whose folders are classes of images");
}

}  // namespace
}  // namespace ab
