// SPDX-License-Identifier: MIT
//
// A record is one or two label bytes and then 32 · 32 red, green and blue bytes, one plane after the other; the planes
// are woven into NHWC while reading, once, so that nothing later has to.
#include "data/datasets.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <vector>

#include "engine/core/check.h"
#include "engine/core/hash.h"
#include "engine/core/machine.h"

namespace ab {
namespace {

namespace fs = std::filesystem;

constexpr int kCifarSide = 32;
constexpr std::size_t kPlane = kCifarSide * kCifarSide;
constexpr std::size_t kImageBytes = 3 * kPlane;

/// One byte in front of the image; the last such byte is the label that is trained on.
struct LabelByte {
  const char* meaning;
  int classes;
};

struct CifarFormat {
  const char* name;
  const char* subfolder;         ///< what the official archive unpacks to
  const char* python_subfolder;  ///< what the archive for Python, which is not read here, unpacks to
  const char* remedy;            ///< for a folder without the data set
  std::vector<LabelByte> label_bytes;
  std::vector<const char*> train_files;
  const char* test_file;

  std::size_t record_bytes() const { return label_bytes.size() + kImageBytes; }
};

CifarFormat cifar10_format() {
  return {"CIFAR-10",
          "cifar-10-batches-bin",
          "cifar-10-batches-py",
          "apps/fetch_cifar10.sh downloads the data set, and --dataset synthetic needs none",
          {{"label", 10}},
          {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"},
          "test_batch.bin"};
}

CifarFormat cifar100_format() {
  return {"CIFAR-100",
          "cifar-100-binary",
          "cifar-100-python",
          "unpack cifar-100-binary.tar.gz from https://www.cs.toronto.edu/~kriz/cifar.html, or use --dataset "
          "synthetic, which needs no files",
          {{"coarse label", 20}, {"fine label", 100}},
          {"train.bin"},
          "test.bin"};
}

/// `folder` itself or the official subfolder in it, whichever holds at least one file of the data set; a file
/// that is missing beside others is reported by its own name later.
fs::path find_files(const CifarFormat& format, const std::string& folder) {
  AB_CHECK_KIND(data, !folder.empty(), "{}: no data folder was given; {}", format.name, format.remedy);
  std::error_code ignored;
  AB_CHECK_KIND(data, fs::exists(folder, ignored), "{}: there is no folder '{}'; {}", format.name, folder,
                format.remedy);
  AB_CHECK_KIND(data, fs::is_directory(folder, ignored), "{}: '{}' is not a folder; give the folder that holds {}",
                format.name, folder, format.train_files.front());
  for (const fs::path& candidate : {fs::path(folder), fs::path(folder) / format.subfolder}) {
    const auto holds = [&](const char* file) { return fs::exists(candidate / file, ignored); };
    if (std::any_of(format.train_files.begin(), format.train_files.end(), holds) || holds(format.test_file))
      return candidate;
  }
  const bool python = fs::exists(fs::path(folder) / format.python_subfolder, ignored) ||
                      fs::exists(fs::path(folder) / "batches.meta", ignored) ||
                      fs::exists(fs::path(folder) / "meta", ignored);
  throw Error(ErrorKind::data,
              fmt::format("{}: looked for {} in '{}' and in its subfolder {} and found neither{}; {}", format.name,
                          format.train_files.front(), folder, format.subfolder,
                          python ? " (this is the version for Python; the binary version is needed)" : "",
                          format.remedy));
}

/// The number of records in a file, from its size alone.
std::int64_t count_records(const CifarFormat& format, const fs::path& file) {
  std::error_code error;
  AB_CHECK_KIND(data, fs::exists(file, error),
                "{}: the file '{}' is missing beside others of the data set; "
                "fetch the data set again",
                format.name, file.string());
  const std::uintmax_t size = fs::file_size(file, error);
  AB_CHECK_KIND(data, !error, "{}: cannot read '{}': {}", format.name, file.string(), error.message());
  const std::size_t record = format.record_bytes();
  AB_CHECK_KIND(data, size > 0, "{}: the file '{}' is empty, expected records of {} bytes; fetch the data set again",
                format.name, file.string(), record);
  AB_CHECK_KIND(data, size % record == 0,
                "{}: the file '{}' has {} bytes, expected a multiple of {} (it ends {} bytes into record {}); it is "
                "truncated or in a different format: fetch the data set again",
                format.name, file.string(), size, record, size % record, size / record);
  return static_cast<std::int64_t>(size / record);
}

/// Checks the label bytes of one record and returns the last of them.
std::uint16_t checked_label(const CifarFormat& format, const std::uint8_t* record, const fs::path& file,
                            std::int64_t index) {
  for (std::size_t i = 0; i < format.label_bytes.size(); ++i)
    AB_CHECK_KIND(data, record[i] < format.label_bytes[i].classes,
                  "{}: record {} of '{}' has the {} {}, expected 0 to {}; the file is damaged or in a different format",
                  format.name, index, file.string(), format.label_bytes[i].meaning, record[i],
                  format.label_bytes[i].classes - 1);
  return record[format.label_bytes.size() - 1];
}

void planes_to_pixels(const std::uint8_t* planes, std::uint8_t* pixels) {
  for (std::size_t i = 0; i < kPlane; ++i)
    for (std::size_t c = 0; c < 3; ++c) pixels[3 * i + c] = planes[c * kPlane + i];
}

/// Reads `count` records of `file` into the images that start at `first`.
void read_records(const CifarFormat& format, const fs::path& file, std::int64_t count, ImageSet& set,
                  std::int64_t first) {
  constexpr std::int64_t kChunk = 256;  // records a read: stays in the cache while it is converted
  const std::size_t record_bytes = format.record_bytes();
  std::vector<std::uint8_t> chunk(kChunk * record_bytes);
  errno = 0;
  std::ifstream in(file, std::ios::binary);
  AB_CHECK_KIND(data, in, "{}: cannot open '{}': {}", format.name, file.string(), std::strerror(errno));
  for (std::int64_t done = 0; done < count;) {
    const std::int64_t records = std::min(kChunk, count - done);
    const auto bytes = static_cast<std::streamsize>(static_cast<std::size_t>(records) * record_bytes);
    in.read(reinterpret_cast<char*>(chunk.data()), bytes);
    AB_CHECK_KIND(data, in.gcount() == bytes, "{}: reading '{}' stopped in record {} of {}: {}", format.name,
                  file.string(), done + in.gcount() / static_cast<std::streamsize>(record_bytes), count,
                  errno ? std::strerror(errno) : "the file became shorter");
    for (std::int64_t i = 0; i < records; ++i) {
      const std::uint8_t* record = chunk.data() + static_cast<std::size_t>(i) * record_bytes;
      const auto image = static_cast<std::size_t>(first + done + i);
      set.labels[image] = checked_label(format, record, file, done + i);
      planes_to_pixels(record + format.label_bytes.size(), set.pixels.data() + image * kImageBytes);
    }
    done += records;
  }
}

ImageSet load_files(const CifarFormat& format, const fs::path& folder, const std::vector<const char*>& files) {
  // All sizes are checked before anything is allocated or read.
  std::vector<std::int64_t> counts;
  ImageSet set;
  set.name = format.name;
  set.height = set.width = kCifarSide;
  set.classes = format.label_bytes.back().classes;
  for (const char* file : files) set.count += counts.emplace_back(count_records(format, folder / file));
  check_host_memory(fmt::format("{}: the {} images of '{}' need", format.name, set.count, folder.string()),
                    set.count * static_cast<std::int64_t>(kImageBytes + sizeof(std::uint16_t)),
                    "raise the limit of memory (a container's, a job's, ulimit -v), or start fewer processes");
  set.pixels.resize(static_cast<std::size_t>(set.count) * kImageBytes);
  set.labels.resize(static_cast<std::size_t>(set.count));
  std::int64_t first = 0;
  for (std::size_t i = 0; i < files.size(); ++i) {
    read_records(format, folder / files[i], counts[i], set, first);
    first += counts[i];
  }
  return set;
}

/// A file that was copied over another one counts its images twice, or tests on those of training.
void warn_of_copies(const CifarFormat& format, const fs::path& folder, ImageSets& sets) {
  std::map<std::uint64_t, const char*> seen;  // by what the files hold
  const auto look = [&](const char* file, ImageSet& set, std::size_t first, std::size_t count) {
    const std::uint64_t labels = hash64(set.labels.data() + first, count * sizeof(std::uint16_t));
    const auto [at, is_new] =
        seen.emplace(hash64(set.pixels.data() + first * kImageBytes, count * kImageBytes, labels), file);
    if (!is_new)
      set.warnings.push_back(fmt::format("{}: '{}' holds the same images as {}; fetch the data set again", format.name,
                                         (folder / file).string(), at->second));
  };
  std::size_t first = 0;
  for (const char* file : format.train_files) {
    const auto count = static_cast<std::size_t>(count_records(format, folder / file));
    look(file, sets.train, first, count);
    first += count;
  }
  look(format.test_file, sets.test, 0, static_cast<std::size_t>(sets.test.count));
}

/// Files that are named as if they belonged to CIFAR-10, whose training images are in several files.
void warn_of_others(const CifarFormat& format, const fs::path& folder, ImageSets& sets) {
  std::vector<std::string> others;
  std::error_code ignored;
  for (fs::directory_iterator at(folder, ignored), end; !ignored && at != end; at.increment(ignored)) {
    const std::string name = at->path().filename().string();
    const auto is_name = [&](const char* file) { return name == file; };
    if (name.ends_with(".bin") && name.starts_with("data_batch") && format.train_files.size() > 1 &&
        std::none_of(format.train_files.begin(), format.train_files.end(), is_name))
      others.push_back(name);
  }
  std::sort(others.begin(), others.end());
  if (!others.empty())
    sets.train.warnings.push_back(fmt::format(
        "{}: {} in '{}' {} left out; the data set has {} to {}", format.name, fmt::join(others, ", "), folder.string(),
        others.size() == 1 ? "is" : "are", format.train_files.front(), format.train_files.back()));
}

ImageSets load(const CifarFormat& format, const std::string& folder) {
  const fs::path found = find_files(format, folder);
  ImageSets sets{load_files(format, found, format.train_files), load_files(format, found, {format.test_file})};
  warn_of_copies(format, found, sets);
  warn_of_others(format, found, sets);
  return sets;
}

}  // namespace

ImageSets load_cifar10(const std::string& folder) { return load(cifar10_format(), folder); }
ImageSets load_cifar100(const std::string& folder) { return load(cifar100_format(), folder); }

}  // namespace ab
