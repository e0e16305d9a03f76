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

#include "data/class_folder.h"
#include "data/decode.h"
#include "engine/core/check.h"

namespace ab {
namespace {

namespace fs = std::filesystem;

constexpr int kSideSeen = 224;
constexpr std::size_t kMaxClasses = std::size_t{std::numeric_limits<std::uint16_t>::max()} + 1;
constexpr std::uintmax_t kMaxFileBytes = std::uintmax_t{1} << 28;
constexpr std::int64_t kSizesAsked = 1000;  // of files, to tell data sets of the same names apart

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

std::shared_ptr<ImageFolder> list_images(const fs::path& root, const std::vector<std::string>& class_names,
                                         LeftOut left_out) {
  auto images = std::make_shared<ImageFolder>("ImageNet", root.string(), class_names, left_out);
  const std::string text = left_out.text(), remedy = left_out.remedy();
  AB_CHECK_KIND(data, images->count > 0,
                "imagenet: there are no images (.JPEG, .jpg, .png) in the class folders of '{}'{}", printable(root),
                left_out.files() == 0 ? "" : fmt::format(", but {}; {}", text, remedy));
  if (const std::int64_t files = left_out.files(); files > 0)
    images->warnings.push_back(fmt::format("imagenet: {} in '{}' {} left out: {}; to use such files, {}",
                                           files == 1 ? "1 file" : fmt::format("{} files", files), printable(root),
                                           files == 1 ? "is" : "are", text, remedy));
  images->height = images->width = kSideSeen;
  images->cropping = Cropping::resized;
  images->mean = {0.485f, 0.456f, 0.406f};
  images->stddev = {0.229f, 0.224f, 0.225f};
  return images;
}

/// The class folders of train or val.
std::vector<std::string> list_classes(const fs::path& folder, LeftOut& left_out) {
  std::vector<std::string> names = class_folders(folder, left_out);
  AB_CHECK_KIND(data, !names.empty(),
                "imagenet: '{}' has no class folders{}; sort its images into one folder for each class",
                printable(folder), left_out.files() == 0 ? "" : fmt::format(", but {}", left_out.text()));
  AB_CHECK_KIND(data, names.size() <= kMaxClasses, "imagenet: '{}' has {} class folders, expected 1 to {}",
                printable(folder), names.size(), kMaxClasses);
  return names;
}

void check_train_classes(const ImageFolder& train, const fs::path& folder) {
  const std::vector<int> empty = labels_without_images(train);
  if (empty.empty()) return;
  const std::string& name = train.class_names()[static_cast<std::size_t>(empty.front())];
  LeftOut left_out;
  image_files(folder / name, left_out);
  throw Error(ErrorKind::data,
              fmt::format("imagenet: the class folder '{}' in train holds no images (.JPEG, .jpg, .png){}",
                          printable(name),
                          left_out.files() == 0 ? "; unpack its images into it, or move it elsewhere"
                                                : fmt::format(", but {}; {}", left_out.text(), left_out.remedy())));
}

void check_val_classes(const std::vector<std::string>& tested, const std::vector<std::string>& known,
                       const fs::path& val) {
  const auto is_known = [&](const std::string& name) { return std::binary_search(known.begin(), known.end(), name); };
  AB_CHECK_KIND(
      data, std::any_of(tested.begin(), tested.end(), is_known),
      "imagenet: no folder in '{}' ('{}' is the first) is named as a class of train; sort its images into one "
      "folder for each class, as train has",
      printable(val), printable(tested.front()));
  for (const std::string& name : tested)
    AB_CHECK_KIND(data, is_known(name),
                  "imagenet: val has the class '{}', which train lacks; give both the same classes", printable(name));
}

}  // namespace

ImageFolder::ImageFolder(std::string set_name, std::string root, std::vector<std::string> class_names,
                         LeftOut& left_out)
    : root_(std::move(root)), class_names_(std::move(class_names)) {
  name = std::move(set_name);
  classes = static_cast<int>(class_names_.size());
  for (std::size_t label = 0; label < class_names_.size(); ++label) {
    const fs::path folder = fs::path(root_) / class_names_[label];
    std::error_code ignored;
    if (!fs::exists(folder, ignored)) continue;
    LeftOut of_class;
    for (const std::string& file : image_files(folder, of_class)) {
      name_begins_.push_back(static_cast<std::uint32_t>(file_names_.size()));
      labels_.push_back(static_cast<std::uint16_t>(label));
      file_names_ += file;
    }
    left_out.add(of_class, class_names_[label]);
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

ImageView ImageFolder::read(std::int64_t i, Image& buffer, const ChoosePart& part) const {
  const std::string file = path(i);
  decode_image(read_bytes(file), printable(file), buffer, part);
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
  LeftOut left_out_of_train, left_out_of_val;
  const std::vector<std::string> class_names = list_classes(train_folder, left_out_of_train);
  const auto train = list_images(train_folder, class_names, left_out_of_train);
  check_train_classes(*train, train_folder);
  check_val_classes(list_classes(val_folder, left_out_of_val), class_names, val_folder);
  const auto val = list_images(val_folder, class_names, left_out_of_val);
  if (const std::vector<int> missing = labels_without_images(*val); !missing.empty())
    val->warnings.push_back(fmt::format("imagenet: val has no images of {} of {} classes, '{}' first", missing.size(),
                                        class_names.size(),
                                        printable(class_names[static_cast<std::size_t>(missing.front())])));
  if (class_names.size() == 1)
    train->warnings.push_back(fmt::format(
        "imagenet: '{}' has the images of one class, '{}', and so nothing to tell apart; sort them into one folder for each "
        "class",
        printable(train_folder), printable(class_names.front())));
  train->thin_out(train_count);
  val->thin_out(val_count);
  return {train, val};
}

}  // namespace ab
