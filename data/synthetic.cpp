// SPDX-License-Identifier: MIT
#include "data/datasets.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <span>
#include <vector>

#include "data/shape_images.h"
#include "engine/core/atomic_file.h"
#include "engine/core/check.h"

namespace ab {
namespace {

namespace fs = std::filesystem;

/// Part of the folder's name: to be raised with every change that alters a single byte of the files, so that
/// no one trains on a mixture of old and new pictures.
constexpr int kFormatVersion = 1;
constexpr std::int64_t kTrainFiles = 5;
constexpr std::size_t kRecordBytes = 1 + kShapeImageBytes;

/// One file of CIFAR-10's layout: the pictures [begin, end) of a split.
struct RecordFile {
  std::string name;
  Split split;
  std::int64_t begin, end;

  std::uintmax_t bytes() const { return static_cast<std::uintmax_t>(end - begin) * kRecordBytes; }
};

std::vector<RecordFile> record_files(const SyntheticOptions& options) {
  std::vector<RecordFile> files;
  for (std::int64_t i = 0; i < kTrainFiles; ++i)
    files.push_back({fmt::format("data_batch_{}.bin", i + 1), Split::train, options.train_count * i / kTrainFiles,
                     options.train_count * (i + 1) / kTrainFiles});
  files.push_back({"test_batch.bin", Split::test, 0, options.test_count});
  return files;
}

/// A folder of a unique name beside its later place; removed with its contents unless it was published.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(const fs::path& target) : path_(target.string() + ".tmp-XXXXXX") {
    AB_CHECK_KIND(data, ::mkdtemp(path_.data()), "cannot create '{}': {}", path_, std::strerror(errno));
    // mkdtemp() locks out everyone else; a cache may be shared.
    std::error_code ignored;
    fs::permissions(path_,
                    fs::perms::owner_all | fs::perms::group_read | fs::perms::group_exec | fs::perms::others_read |
                        fs::perms::others_exec,
                    ignored);
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  fs::path path() const { return path_; }

  /// Moves the folder to its place. When another process was faster, its result stays and ours is discarded.
  void publish(const fs::path& target) {
    if (::rename(path_.c_str(), target.c_str()) == 0) {
      path_.clear();
      return sync_folder(target.parent_path().string());
    }
    AB_CHECK_KIND(data, errno == EEXIST || errno == ENOTEMPTY, "cannot create '{}': {}", target.string(),
                  std::strerror(errno));
  }

 private:
  std::string path_;
};

std::vector<std::uint8_t> draw_records(const RecordFile& file, std::uint64_t seed) {
  std::vector<std::uint8_t> records(file.bytes());
#pragma omp parallel for schedule(static)
  for (std::int64_t index = file.begin; index < file.end; ++index) {
    std::uint8_t* record = records.data() + static_cast<std::size_t>(index - file.begin) * kRecordBytes;
    record[0] = static_cast<std::uint8_t>(shape_label(index));
    draw_shape_image(seed, file.split, index, std::span<std::uint8_t, kShapeImageBytes>(record + 1, kShapeImageBytes));
  }
  return records;
}

void write_set(const fs::path& folder, const SyntheticOptions& options) {
  for (const RecordFile& file : record_files(options)) {
    const std::vector<std::uint8_t> records = draw_records(file, options.seed);
    write_file_atomically((folder / file.name).string(),
                          {reinterpret_cast<const char*>(records.data()), records.size()});
  }
  std::string names;
  for (std::string_view name : kShapeNames) names += fmt::format("{}\n", name);
  write_file_atomically((folder / "batches.meta.txt").string(), names);
}

/// A finished folder has the right files; anything else was changed by someone since.
void check_set(const fs::path& folder, const SyntheticOptions& options) {
  for (const RecordFile& file : record_files(options)) {
    std::error_code error;
    const std::uintmax_t size = fs::file_size(folder / file.name, error);
    AB_CHECK_KIND(data, !error, "synthetic data set: cannot read '{}': {}; delete the folder to have it drawn again",
                  (folder / file.name).string(), error.message());
    AB_CHECK_KIND(data, size == file.bytes(),
                  "synthetic data set: '{}' has {} bytes, expected {}; delete the folder to have it drawn again",
                  (folder / file.name).string(), size, file.bytes());
  }
}

}  // namespace

fs::path cache_folder() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache && *cache) return fs::path(cache) / "abtrain";
  const char* home = std::getenv("HOME");
  return home && *home ? fs::path(home) / ".cache" / "abtrain" : fs::path();
}

std::string ensure_synthetic_cifar10(const SyntheticOptions& options, const std::string& cache_root) {
  const fs::path root = cache_root.empty() ? cache_folder() : fs::path(cache_root);
  AB_CHECK_KIND(data, !root.empty(),
                "synthetic data set: neither XDG_CACHE_HOME nor HOME is set, so there is no place to keep it; give "
                "data_dir or set XDG_CACHE_HOME");
  const fs::path folder = root / fmt::format("synthetic-v{}-{}-{}-seed{}", kFormatVersion, options.train_count,
                                             options.test_count, options.seed);
  std::error_code error;
  if (!fs::exists(folder, error)) try {
      fs::create_directories(root, error);
      AB_CHECK_KIND(data, !error, "cannot create '{}': {}", root.string(), error.message());
      TemporaryFolder temporary(folder);
      write_set(temporary.path(), options);
      temporary.publish(folder);
    } catch (const Error& failure) {
      throw Error(
          ErrorKind::data,
          fmt::format("synthetic data set: {}; data_dir or XDG_CACHE_HOME chooses a different place", failure.what()));
    }
  check_set(folder, options);
  return folder.string();
}

}  // namespace ab
