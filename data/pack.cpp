// SPDX-License-Identifier: MIT
#include "data/pack.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <span>
#include <utility>

#include "data/archive_index.h"
#include "data/crop.h"
#include "data/decode.h"
#include "data/image_files.h"
#include "data/sampler.h"
#include "data/tiled_jpeg.h"
#include "engine/core/atomic_file.h"
#include "engine/core/check.h"
#include "engine/core/hash.h"
#include "engine/core/threads.h"

namespace ab {
namespace {

namespace fs = std::filesystem;

constexpr const char *kDescription = "packed.txt", *kFirstLine = "abtrain packed set 1\n";

/// An archive that is to be written, and the images in it.
struct ArchivePlan {
  const ImageFiles* set;
  std::string path;
  std::vector<std::int64_t> images;
};

std::string member_name(const ImageFiles& set, std::int64_t i) {
  return fmt::format("{}/{}", set.class_names()[static_cast<std::size_t>(set.label(i))], set.file_name(i));
}

/// Shards may have names that a folder for each class cannot hold.
void check_names(const ImageFiles& set) {
  std::string previous;
  for (std::int64_t i = 0; i < set.count; ++i) {
    const std::string name = member_name(set, i);
    const bool fits = std::ranges::count(name, '/') == 1 && name.find_first_of({"\n\0", 2}) == std::string::npos &&
                      !name.starts_with('/') && !is_hidden(name.substr(0, name.find('/')));
    AB_CHECK_KIND(data, fits, "imagenet: '{}' cannot be packed: '{}' is no name of a file in the folder of its class",
                  printable(set.path(i)), printable(name));
    AB_CHECK_KIND(data, name != previous, "imagenet: '{}' cannot be packed: its class has two images of that name",
                  printable(set.path(i)));
    previous = name;
  }
}

std::vector<ArchivePlan> plan_archives(const TrainAndTest& source, const std::string& to,
                                       std::int64_t images_per_archive) {
  std::vector<ArchivePlan> plans;
  for (const auto& [part, images] : {std::pair{"train", source.train}, std::pair{"val", source.test}}) {
    const auto& set = dynamic_cast<const ImageFiles&>(*images);
    check_names(set);
    const std::vector<std::int64_t> order = packed_order(set.count);
    for (std::int64_t begin = 0; begin < set.count; begin += images_per_archive) {
      const std::string path = fmt::format("{}/{}-{:05}.tar", to, part, begin / images_per_archive);
      const auto first = order.begin() + begin;
      plans.push_back({&set, path, {first, first + std::min(images_per_archive, set.count - begin)}});
    }
  }
  return plans;
}

bool has_pixels_of(std::span<const std::uint8_t> file, const Image& image) try {
  Image decoded;
  decode_image(file, "", decoded);
  return decoded.height == image.height && decoded.pixels == image.pixels;
} catch (const Error&) {
  return false;
}

/// Writes the index before the archive appears: an archive that is there is whole and has its index.
void write_archive(const ArchivePlan& plan, const PackOptions& options, const std::function<bool()>& goes_on) {
  AtomicFile file(plan.path);
  std::vector<TarMember> members;
  std::int64_t end = 0;
  for (const std::int64_t i : plan.images) {
    const std::vector<std::uint8_t> bytes = packed_image(plan.set->file(i), printable(plan.set->path(i)), options);
    const auto size = static_cast<std::int64_t>(bytes.size());
    const std::string name = member_name(*plan.set, i);
    std::string blocks = tar_header(name, size);
    const auto offset = end + static_cast<std::int64_t>(blocks.size());
    const std::int64_t source = options.side == 0 ? plan.set->file_bytes(i) : size;  // a scaled set is another one
    members.push_back({{offset, size, source, hash64(bytes.data(), bytes.size())}, name});
    blocks.append(bytes.begin(), bytes.end());
    blocks += tar_padding(size);
    file.write(blocks);
    end += static_cast<std::int64_t>(blocks.size());
    if (!goes_on()) return;
  }
  file.write(tar_end());
  end += static_cast<std::int64_t>(tar_end().size());
  write_file_atomically(index_path(plan.path), archive_index(members, end, plan.path));
  file.commit();
}

/// Of an archive that is there whole; nothing of another.
std::optional<std::vector<TarMember>> finished_archive(const std::string& path) {
  std::error_code error;
  std::string problem;
  const std::uintmax_t bytes = fs::file_size(path, error);
  return error ? std::nullopt : read_archive_index(path, static_cast<std::int64_t>(bytes), problem);
}

/// The name of the file that a temporary one was to become; the same name of any other file.
std::string final_name(const std::string& name) {
  std::size_t dot = name.size();
  for (int parts = 0; parts < 3 && dot != std::string::npos && dot > 0; ++parts) dot = name.rfind('.', dot - 1);
  const std::string target = name.substr(0, dot);
  return is_temporary_of(name, target) ? target : name;
}

/// Sees that the folder is empty or holds these images with these options, and removes what an interruption left.
void open_folder(const std::string& to, const std::string& description) {
  const std::string file = fmt::format("{}/{}", to, kDescription);
  const bool is_new = !fs::exists(file);
  std::vector<fs::path> left;
  for (const fs::directory_entry& entry : fs::directory_iterator(to)) {
    const std::string name = entry.path().filename().string();
    if (final_name(name) != name && (!is_new || final_name(name) == kDescription)) left.push_back(entry.path());
    else AB_CHECK(!is_new, "{} holds '{}' and no packed set; give a new folder", to, printable(name));
  }
  const std::string found = is_new ? description : read_file(file, ErrorKind::data);
  AB_CHECK(found == description,
           "{} was packed from other images or with other options, as its {} says; give a new folder", to,
           kDescription);
  for (const fs::path& path : left) fs::remove(path);
  if (is_new) write_file_atomically(file, description);
}

/// No other process packs into the folder while one lives: of the folder itself, so that no file stays behind. Disks without
/// such locks do without.
class FolderLock {
 public:
  explicit FolderLock(const std::string& folder)
      : descriptor_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    if (descriptor_ < 0 || ::flock(descriptor_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
    ::close(descriptor_);
    throw Error(ErrorKind::config,
                fmt::format("another process packs into {}; wait for it, or give another folder", folder));
  }
  ~FolderLock() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int descriptor_;
};

std::string description_of(const TrainAndTest& source, const PackOptions& options) {
  return fmt::format("{}source {:016x}\ntrain {}\nval {}\nimages_per_archive {}\nside {}\nquality {}\n", kFirstLine,
                     source.hash(), source.train->count, source.test->count, options.images_per_archive, options.side,
                     options.quality);
}

}  // namespace

PackedBytes pack_images(const TrainAndTest& source, const std::string& to, const PackOptions& options,
                        const std::function<void(std::int64_t done, std::int64_t total)>& progress) {
  const std::vector<ArchivePlan> plans = plan_archives(source, to, options.images_per_archive);
  fs::create_directories(to);
  const FolderLock lock(to);
  open_folder(to, description_of(source, options));
  std::vector<ArchivePlan> left = plans;
  std::erase_if(left, [](const ArchivePlan& plan) { return finished_archive(plan.path).has_value(); });
  std::int64_t total = 0;
  for (const ArchivePlan& plan : left) total += std::ssize(plan.images);
  std::atomic<std::int64_t> done = 0;
  std::atomic<bool> failed = false;
  const auto goes_on = [&] {
    if (const std::int64_t images = ++done; progress) progress(images, total);
    return !failed;
  };
  for_each_in_threads(std::ssize(left), options.threads, [&](std::int64_t i) {
    try {
      write_archive(left[static_cast<std::size_t>(i)], options, goes_on);
    } catch (...) {
      failed = true;
      throw;
    }
  });
  PackedBytes bytes;
  for (const ArchivePlan& plan : plans) {
    for (const std::int64_t i : plan.images) bytes.source += plan.set->file_bytes(i);
    for (const TarMember& member : finished_archive(plan.path).value_or(std::vector<TarMember>{}))
      bytes.packed += member.bytes;
  }
  return bytes;
}

std::vector<std::uint8_t> packed_image(std::vector<std::uint8_t> file, const std::string& name,
                                       const PackOptions& options) {
  Image image;
  decode_image(file, name, image);
  const int shorter = std::min(image.height, image.width);
  if (options.side == 0 || shorter <= options.side) {
    std::optional<std::vector<std::uint8_t>> tiled = tile_jpeg(file);
    return tiled && has_pixels_of(*tiled, image) ? *std::move(tiled) : file;
  }
  const auto scaled = [&](int size) {
    return static_cast<int>(std::lround(static_cast<double>(size) * options.side / shorter));
  };
  Image small;
  Resizer().resize(image.view(), {0, 0, image.height, image.width}, scaled(image.height), scaled(image.width), small);
  return encode_jpeg(small.view(), options.quality, name);
}

std::string packed_description(const std::string& folder) {
  const std::string file = fmt::format("{}/{}", folder, kDescription);
  std::error_code ignored;
  const std::string text = fs::is_regular_file(file, ignored) ? read_file(file, ErrorKind::data) : "";
  return text.starts_with(kFirstLine) ? text : "";
}

void check_packed_whole(const std::string& folder, std::int64_t train_images, std::int64_t val_images) {
  const std::string description = packed_description(folder);
  const bool whole =
      description.find(fmt::format("\ntrain {}\nval {}\n", train_images, val_images)) != std::string::npos;
  AB_CHECK_KIND(
      data, description.empty() || whole,
      "imagenet: '{}' has {} images of train and {} of val, and by its {} other numbers: it was not packed to its "
      "end, or archives are missing; run abtrain data pack again",
      printable(folder), train_images, val_images, kDescription);
}

}  // namespace ab
