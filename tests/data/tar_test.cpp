// SPDX-License-Identifier: MIT
//
// Archives that the program tar makes, whole and damaged.
#include "data/tar.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <map>

#include "tests/error_message.h"

namespace ab {
namespace {

namespace fs = std::filesystem;
using test::contains;
using test::message_of;
using Bytes = std::vector<std::uint8_t>;

class TarTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "abtrain-tar-test-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }

  void write(const fs::path& name, const std::string& text) {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }
  /// Of what lies in `inside`, in the folder of the test.
  fs::path tar(const std::string& name, const std::string& flags, const std::string& inside) {
    const fs::path archive = folder_ / name;
    const std::string command =
        fmt::format("cd '{}' && tar {} -cf '{}' {}", folder_.string(), flags, archive.string(), inside);
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
    return archive;
  }
  static Bytes bytes_of(const fs::path& file) {
    std::ifstream in(file, std::ios::binary);
    return Bytes(std::istreambuf_iterator<char>(in), {});
  }
  std::vector<TarMember> members_of(const Bytes& archive, const std::string& name) {
    write(name, std::string(archive.begin(), archive.end()));
    return TarArchive((folder_ / name).string()).members();
  }

  fs::path folder_;
};

std::map<std::string, std::string> contents_of(const fs::path& file) {
  const TarArchive archive(file.string());
  std::map<std::string, std::string> contents;
  for (const TarMember& member : archive.members()) {
    const Bytes bytes = archive.read(member.offset, member.bytes, member.name);
    contents[member.name] = std::string(bytes.begin(), bytes.end());
  }
  return contents;
}

TEST_F(TarTest, FilesOfEveryFormatWithNamesOfEveryLength) {
  const std::string of_150 = "a/" + std::string(60, 'b') + "/" + std::string(87, 'c');
  const std::string of_300 = "a/" + std::string(140, 'd') + "/" + std::string(157, 'e');
  for (const std::string format : {"v7", "ustar", "gnu", "pax"}) {
    fs::remove_all(folder_ / "a");
    std::map<std::string, std::string> expected{
        {"a/empty", ""}, {"a/one", "1"}, {"a/block", std::string(512, 'x')}, {"a/more", std::string(70000, 'y')}};
    if (format != "v7") expected[of_150] = "a name of 150";
    if (format == "gnu" || format == "pax") expected[of_300] = "a name of 300";
    for (const auto& [name, text] : expected) write(name, text);
    fs::create_symlink("/etc/passwd", folder_ / "a/link");
    fs::create_hard_link(folder_ / "a/one", folder_ / "a/twice");
    const auto found = contents_of(tar("archive.tar", "--format=" + format, "a/one a/[!ot]* a/twice"));
    EXPECT_EQ(found, expected) << format << ": links are no files";
    fs::remove(folder_ / "a/link");
  }
}

TEST_F(TarTest, AnArchiveInsideIsAFolder) {
  write("1.JPEG", "one"), write("2.JPEG", "two"), write("c/3.JPEG", "three");
  tar("n01.tar", "", "1.JPEG 2.JPEG");
  tar("n02.tar", "", "c/3.JPEG");
  const auto found = contents_of(tar("train.tar", "", "n01.tar ./n02.tar 1.JPEG"));
  EXPECT_EQ(found, (std::map<std::string, std::string>{
                       {"n01/1.JPEG", "one"}, {"n01/2.JPEG", "two"}, {"n02/c/3.JPEG", "three"}, {"1.JPEG", "one"}}));
}

/// Sets a text in the header that begins at a byte, and its checksum.
void put(Bytes& archive, std::size_t header, std::size_t field, const std::string& text) {
  const auto begin = archive.begin() + static_cast<long>(header);
  std::ranges::copy(text, begin + static_cast<long>(field));
  std::fill_n(begin + 148, 8, ' ');
  int sum = 0;
  for (int i = 0; i < 512; ++i) sum += begin[i];
  std::ranges::copy(fmt::format("{:06o}", sum), begin + 148);
}

TEST_F(TarTest, HiddenArchivesAreFilesHoweverDeepTheyLie) {
  write(".tar", "text"), write("._n01.tar", "no archive");
  EXPECT_EQ(contents_of(tar("archive.tar", "", "._n01.tar")).at("._n01.tar"), "no archive");
  Bytes one = bytes_of(tar("one.tar", "--format=ustar", ".tar")), deep;
  constexpr std::size_t levels = 40000;
  for (std::size_t level = 0; level < levels; ++level) {
    put(one, 0, 124, fmt::format("{:011o}", 512 * (levels - level)));
    deep.insert(deep.end(), one.begin(), one.begin() + 512);
  }
  deep.resize(deep.size() + 1024);
  const std::vector<TarMember> members = members_of(deep, "deep.tar");
  ASSERT_EQ(members.size(), 1u);
  EXPECT_EQ(members[0].name, ".tar");
}

TEST_F(TarTest, NoImageIsLeftOutAsALink) {
  write("a.jpg", "image"), write("b.txt", "text");
  fs::create_hard_link(folder_ / "a.jpg", folder_ / "hard.jpg");
  fs::create_symlink("a.jpg", folder_ / "soft.png");
  std::ofstream(folder_ / "hole.jpg");
  fs::resize_file(folder_ / "hole.jpg", 1 << 20);
  for (const std::string files : {"a.jpg hard.jpg", "soft.png", "--sparse hole.jpg"})
    EXPECT_TRUE(contains(message_of(ErrorKind::data, [&] { contents_of(tar("l.tar", "--format=gnu", files)); }),
                         "an image is a link or a sparse file; make the archive with"))
        << files;
}

TEST_F(TarTest, FoldersHoldNothingWhateverSizeTheyClaim) {
  write("a/1", "one");
  Bytes archive = bytes_of(tar("archive.tar", "--format=ustar", "a"));
  put(archive, 0, 124, "00000010000");
  EXPECT_EQ(members_of(archive, "folder.tar").size(), 1u);
}

TEST_F(TarTest, NoCutAndNoDamageGoesUnnoticed) {
  write("a/1", "one"), write("a/2", std::string(1000, '2'));
  tar("a/in.tar", "", "a/1");
  const Bytes whole = bytes_of(tar("archive.tar", "--format=pax -b 1", "a/1 a/2 a/in.tar"));
  const std::size_t members = members_of(whole, "whole").size();
  EXPECT_EQ(members, 3u);
  std::size_t end = whole.size();  // of the first block of the end
  while (end >= 1024 &&
         std::all_of(whole.begin() + static_cast<long>(end) - 1024, whole.begin() + static_cast<long>(end) - 512,
                     [](std::uint8_t byte) { return byte == 0; }))
    end -= 512;
  for (std::size_t size = 0; size < end; size += 128)
    EXPECT_TRUE(contains(
        message_of(ErrorKind::data,
                   [&] { members_of(Bytes(whole.begin(), whole.begin() + static_cast<long>(size)), "cut.tar"); }),
        "cut.tar' at byte"))
        << size << " of " << end;
  for (const std::size_t byte : {0, 100, 124, 156, 257}) {
    Bytes damaged = whole;
    damaged[byte] ^= 1;
    EXPECT_TRUE(contains(message_of(ErrorKind::data, [&] { members_of(damaged, "damaged.tar"); }),
                         "at byte 0: this is no header of a tar archive, or it is damaged"));
  }
}

TEST_F(TarTest, ShardsMayBeMoreThanTheFilesOfAProcess) {
  write("a", "text");
  const fs::path file = tar("archive.tar", "", "a");
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{64, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  {
    std::deque<TarArchive> shards;
    for (int i = 0; i < 100; ++i) shards.emplace_back(file.string());
    EXPECT_EQ(shards.back().members().size(), 1u);
  }
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
}

TEST_F(TarTest, WhatCannotBeReadIsNamed) {
  EXPECT_TRUE(contains(message_of(ErrorKind::data, [&] { TarArchive((folder_ / "none.tar").string()); }),
                       "none.tar': No such file"));
  write("a", "text");
  const fs::path file = tar("archive.tar", "", "a");
  const TarArchive archive(file.string());
  const TarMember member = archive.members().at(0);
  fs::resize_file(file, 100);
  EXPECT_TRUE(contains(message_of(ErrorKind::data, [&] { archive.read(member.offset, member.bytes, "archive.tar/a"); }),
                       "cannot read 'archive.tar/a': the archive became shorter"));
}

}  // namespace
}  // namespace ab
