// SPDX-License-Identifier: MIT
//
// Files of any size and content are either CIFAR-100, image by image as they say, or one Error(data). The first four
// bytes are the sizes of the two files, which the others fill over and over: a record is longer than what a fuzzer likes.
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "data/datasets.h"
#include "engine/core/check.h"

namespace {

constexpr std::size_t kRecordBytes = 2 + 3072, kPlane = 1024;

std::string make_file(const std::string& path, std::size_t size, const std::string& pattern) {
  std::string content;
  while (content.size() < size) content += pattern;
  content.resize(size);
  std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
  return content;
}

void compare(const ab::ImageSet& set, const std::string& file) {
  AB_ASSERT(static_cast<std::size_t>(set.count) * kRecordBytes == file.size() && std::ssize(set.labels) == set.count);
  for (std::int64_t i = 0; i < set.count; ++i) {
    const char* record = file.data() + static_cast<std::size_t>(i) * kRecordBytes;
    AB_ASSERT(set.label(i) == static_cast<unsigned char>(record[1]));
    for (const std::size_t p : {std::size_t{0}, std::size_t{517}, kPlane - 1})
      for (std::size_t c = 0; c < 3; ++c)
        AB_ASSERT(set.image(i)[3 * p + c] == static_cast<std::uint8_t>(record[2 + c * kPlane + p]));
  }
}

const std::string& folder() {
  static const std::string made = [] {
    std::string pattern = (std::filesystem::temp_directory_path() / "abtrain_cifar_fuzz_XXXXXX").string();
    AB_ASSERT(mkdtemp(pattern.data()) != nullptr);
    return pattern;
  }();
  return made;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t count) {
  if (count < 5) return 0;
  const std::string pattern(reinterpret_cast<const char*>(bytes) + 4, count - 4);
  const std::string train = make_file(folder() + "/train.bin", bytes[0] + bytes[1] * std::size_t{256}, pattern);
  const std::string test = make_file(folder() + "/test.bin", bytes[2] + bytes[3] * std::size_t{256}, pattern);
  try {
    const ab::ImageSets sets = ab::load_cifar100(folder());
    compare(sets.train, train);
    compare(sets.test, test);
  } catch (const ab::Error& error) {
    AB_ASSERT(error.kind() == ab::ErrorKind::data);
  }
  return 0;
}
