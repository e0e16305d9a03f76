// SPDX-License-Identifier: MIT
#include "data/imagenet.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <thread>
#include <utility>

#include "data/decode.h"
#include "engine/core/check.h"
#include "engine/core/say.h"

namespace ab {
namespace {

namespace fs = std::filesystem;

constexpr int kSide = 224;
constexpr std::size_t kMaxClasses = std::size_t{std::numeric_limits<std::uint16_t>::max()} + 1;
constexpr std::uintmax_t kMaxFileBytes = std::uintmax_t{1} << 28;
constexpr std::int64_t kSizesAsked = 1000;  // of files, to tell data sets of the same names apart

/// A path for a message: names of files may hold line breaks or bytes that are not text.
std::string printable(const fs::path& path) {
  std::string text;
  for (const char c : path.string())
    if (c < ' ' || c > '~') text += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    else text += c;
  return text;
}

bool has_image_extension(const fs::path& file) {
  std::string extension = file.extension().string();
  for (char& c : extension) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  return extension == ".jpeg" || extension == ".jpg" || extension == ".png";
}

/// The names in a folder that satisfy `wanted`, in order of their bytes; hidden ones are left out.
template <class F> std::vector<std::string> sorted_names(const fs::path& folder, const F& wanted) {
  std::error_code error;
  std::vector<std::string> names;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    std::string name = entry->path().filename().string();
    if (!name.starts_with('.') && wanted(*entry)) names.push_back(std::move(name));
  }
  AB_CHECK_KIND(data, !error, "imagenet: cannot list '{}': {}", printable(folder), error.message());
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> class_folders(const fs::path& folder) {
  return sorted_names(folder, [](const fs::directory_entry& entry) {
    std::error_code ignored;  // a loop of links is no folder
    return entry.is_directory(ignored);
  });
}

std::vector<std::string> image_files(const fs::path& folder) {
  return sorted_names(folder, [](const fs::directory_entry& entry) {
    if (!has_image_extension(entry.path())) return false;
    std::error_code error;
    const bool regular = entry.is_regular_file(error);
    AB_CHECK_KIND(data, regular, "imagenet: '{}' cannot be read ({}); remove it or repair the link",
                  printable(entry.path()), error ? error.message() : "not a regular file");
    return true;
  });
}

std::vector<std::uint8_t> read_bytes_once(const std::string& path) {
  const auto check = [&](bool good, const char* reason) {
    AB_CHECK_KIND(data, good, "imagenet: cannot read '{}': {}", printable(path), reason);
  };
  std::error_code error;
  const std::uintmax_t size = fs::file_size(path, error);
  check(!error, error.message().c_str());
  check(size <= kMaxFileBytes, "it is too large to be an image of a data set");
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  check(static_cast<bool>(in), std::strerror(errno));
  std::vector<std::uint8_t> bytes(size);
  in.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(size));
  check(in.gcount() == static_cast<std::streamsize>(size), errno ? std::strerror(errno) : "the file became shorter");
  return bytes;
}

/// A network disk may fail for a moment: asks three times more, after 0.05, 0.2 and 0.8 seconds.
std::vector<std::uint8_t> read_bytes(const std::string& path) {
  for (std::chrono::milliseconds pause{50}; pause.count() < 1000; pause *= 4) {
    try {
      return read_bytes_once(path);
    } catch (const Error&) {
      std::this_thread::sleep_for(pause);
    }
  }
  return read_bytes_once(path);
}

std::shared_ptr<ImageFolder> list_images(const fs::path& root, const std::vector<std::string>& class_names) {
  auto images = std::make_shared<ImageFolder>("ImageNet", root.string(), class_names);
  AB_CHECK_KIND(data, images->count > 0,
                "imagenet: there are no images (.JPEG, .jpg, .png) in the class folders of '{}'", printable(root));
  images->height = images->width = kSide;
  images->cropping = Cropping::resized;
  images->mean = {0.485f, 0.456f, 0.406f};
  images->stddev = {0.229f, 0.224f, 0.225f};
  return images;
}

/// The classes that the set has no image of.
std::vector<std::string> classes_without_images(const ImageFolder& images) {
  std::vector<bool> seen(images.class_names().size());
  for (std::int64_t i = 0; i < images.count; ++i) seen[static_cast<std::size_t>(images.label(i))] = true;
  std::vector<std::string> without;
  for (std::size_t label = 0; label < seen.size(); ++label)
    if (!seen[label]) without.push_back(images.class_names()[label]);
  return without;
}

void check_classes(const ImageFolder& train, const fs::path& val) {
  const std::vector<std::string>& known = train.class_names();
  const std::vector<std::string> empty = classes_without_images(train);
  AB_CHECK_KIND(data, empty.empty(),
                "imagenet: the class folder '{}' in train holds no images; remove it, or unpack its images",
                printable(empty.front()));
  const std::vector<std::string> tested = class_folders(val);
  AB_CHECK_KIND(data, !tested.empty(),
                "imagenet: '{}' has no class folders; sort its images into one folder for each class, as train has",
                printable(val));
  for (const std::string& name : tested)
    AB_CHECK_KIND(data, std::binary_search(known.begin(), known.end(), name),
                  "imagenet: val has the class '{}', which train lacks; give both the same classes", printable(name));
}

}  // namespace

ImageFolder::ImageFolder(std::string set_name, std::string root, std::vector<std::string> class_names)
    : root_(std::move(root)), class_names_(std::move(class_names)) {
  name = std::move(set_name);
  classes = static_cast<int>(class_names_.size());
  for (std::size_t label = 0; label < class_names_.size(); ++label) {
    const fs::path folder = fs::path(root_) / class_names_[label];
    std::error_code ignored;
    if (!fs::exists(folder, ignored)) continue;
    for (const std::string& file : image_files(folder)) {
      name_begins_.push_back(static_cast<std::uint32_t>(file_names_.size()));
      labels_.push_back(static_cast<std::uint16_t>(label));
      file_names_ += file;
    }
  }
  AB_CHECK_KIND(data, file_names_.size() <= std::numeric_limits<std::uint32_t>::max(),
                "imagenet: '{}' holds more images than can be listed", printable(root_));
  name_begins_.push_back(static_cast<std::uint32_t>(file_names_.size()));
  count = static_cast<std::int64_t>(labels_.size());
}

void ImageFolder::thin_out(std::int64_t n) {
  if (n <= 0 || n >= count) return;
  std::string names;
  std::vector<std::uint32_t> begins;
  std::vector<std::uint16_t> labels;
  for (std::int64_t k = 0; k < n; ++k) {
    const auto i = static_cast<std::size_t>(k * count / n);
    begins.push_back(static_cast<std::uint32_t>(names.size()));
    labels.push_back(labels_[i]);
    names.append(file_names_, name_begins_[i], name_begins_[i + 1] - name_begins_[i]);
  }
  begins.push_back(static_cast<std::uint32_t>(names.size()));
  file_names_ = std::move(names);
  name_begins_ = std::move(begins);
  labels_ = std::move(labels);
  count = n;
}

std::string ImageFolder::path(std::int64_t i) const {
  const auto k = static_cast<std::size_t>(i);
  return fmt::format("{}/{}/{}", root_, class_names_[labels_[k]],
                     file_names_.substr(name_begins_[k], name_begins_[k + 1] - name_begins_[k]));
}

ImageView ImageFolder::read(std::int64_t i, Image& buffer) const {
  const std::string file = path(i);
  decode_image(read_bytes(file), printable(file), buffer);
  return buffer.view();
}

std::uint64_t ImageFolder::fingerprint() const {
  std::string names = file_names_;
  for (const std::string& name : class_names_) names += '/' + name;
  return Dataset::fingerprint() ^ std::hash<std::string>{}(names);
}

std::vector<std::uint64_t> ImageFolder::contents() const {
  std::vector<std::uint64_t> sizes;
  const std::int64_t asked = std::min(count, kSizesAsked);
  for (std::int64_t k = 0; k < asked; ++k) {
    std::error_code error;  // an image that is gone is reported when it is read
    sizes.push_back(fs::file_size(path(k * count / asked), error));
  }
  return sizes;
}

TrainAndTest load_imagenet(const std::string& folder, std::int64_t train_count, std::int64_t val_count) {
  const fs::path train_folder = fs::path(folder) / "train", val_folder = fs::path(folder) / "val";
  for (const fs::path& part : {train_folder, val_folder}) {
    std::error_code ignored;
    AB_CHECK_KIND(data, fs::is_directory(part, ignored),
                  "imagenet: there is no folder '{}'; give the folder that holds train and val, each with "
                  "one folder of "
                  "images for each class",
                  printable(part));
  }
  const std::vector<std::string> class_names = class_folders(train_folder);
  AB_CHECK_KIND(data, !class_names.empty() && class_names.size() <= kMaxClasses,
                "imagenet: '{}' has {} class folders, expected 1 to {}", printable(train_folder), class_names.size(),
                kMaxClasses);
  const auto train = list_images(train_folder, class_names);
  check_classes(*train, val_folder);
  const auto val = list_images(val_folder, class_names);
  if (const std::vector<std::string> missing = classes_without_images(*val); !missing.empty())
    say(stderr, "warning: imagenet: val has no images of {} of {} classes, '{}' first\n", missing.size(),
        class_names.size(), printable(missing.front()));
  train->thin_out(train_count);
  val->thin_out(val_count);
  return {train, val};
}

}  // namespace ab
