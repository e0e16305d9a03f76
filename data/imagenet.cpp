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
#include "data/image_labels.h"
#include "engine/core/check.h"

namespace ab {
namespace {

namespace fs = std::filesystem;

constexpr int kSideSeen = 224;
constexpr std::size_t kMaxClasses = std::size_t{std::numeric_limits<std::uint16_t>::max()} + 1;
constexpr std::uintmax_t kMaxFileBytes = std::uintmax_t{1} << 28;
constexpr std::int64_t kSizesAsked = 1000;  // of files, to tell data sets of the same names apart

std::vector<std::uint8_t> read_bytes(const std::string& path) {
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
template <class Read> std::vector<std::uint8_t> read_with_patience(const Read& read) {
  for (std::chrono::milliseconds pause{50}; pause.count() < 1000; pause *= 4) {
    try {
      return read();
    } catch (const Error&) {
      std::this_thread::sleep_for(pause);
    }
  }
  return read();
}

/// A part of the set as it is found: its images by class, and what is not read.
struct FoundPart {
  ImagePlace place;
  std::map<std::string, std::vector<ImageFile>> files;
  LeftOut left_out;
};

bool is_known(const std::vector<std::string>& classes, const std::string& name) {
  return std::ranges::binary_search(classes, name);
}

bool is_number(const std::string& text) { return text.find_first_not_of("0123456789") == std::string::npos; }

/// Puts flat images into classes. `known`: those of train.
std::map<std::string, std::vector<ImageFile>> sort_into_classes(std::vector<ImageFile> flat, const ImageLabels& labels,
                                                                const std::vector<std::string>& known,
                                                                const std::string& root) {
  std::map<std::string, std::vector<ImageFile>> files;
  for (ImageFile& file : flat) {
    const auto label = labels.find(fs::path(file.name).stem().string());
    AB_CHECK_KIND(data, label != labels.end(), "imagenet: the list of labels beside '{}' has no line for '{}'",
                  printable(root), printable(file.name));
    AB_CHECK_KIND(
        data, is_known(known, label->second) || !is_number(label->second),
        "imagenet: the list of labels beside '{}' gives '{}' the class {}, which is no folder of train; numbers are in "
        "one order in the devkit and in others elsewhere, so name the folders",
        printable(root), printable(file.name), label->second);
    files[label->second].push_back(std::move(file));
  }
  return files;
}

/// An archive of a part, if there is one.
std::string archive_of(const fs::path& folder, const std::string& part) {
  for (const std::string& name : {part + ".tar", "ILSVRC2012_img_" + part + ".tar"}) {
    std::error_code ignored;
    if (fs::exists(folder / name, ignored)) return (folder / name).string();
  }
  return "";
}

FoundPart find_part(const fs::path& folder, const std::string& part) {
  const fs::path root = folder / part;
  std::error_code ignored;
  FoundPart found{{root.string()}, {}, {}};
  const std::string archive = archive_of(folder, part);
  if (fs::is_directory(root, ignored)) {
    for (const std::string& name : class_folders(root, found.left_out)) {
      LeftOut of_class;
      found.files[name] = image_files(root / name, of_class);
      found.left_out.add(of_class, name);
    }
    return found;
  }
  AB_CHECK_KIND(data, !archive.empty(),
                "imagenet: there is no folder '{}'; give the folder that holds train and val, each with one folder of "
                "images for each class, or as archives train.tar and val.tar",
                printable(root));
  found.place = {archive, std::make_shared<TarArchive>(archive)};
  found.files = image_files(found.place.archive->members(), found.left_out);
  return found;
}

/// Images of val that lie in no folder of their class, where a list beside it tells their classes.
void take_labels(FoundPart& val, const fs::path& folder, const std::vector<std::string>& known) {
  if (std::ranges::any_of(val.files, [&](const auto& of_class) { return is_known(known, of_class.first); })) return;
  const ImageLabels labels = read_image_labels(folder);
  if (labels.empty()) return;
  std::vector<ImageFile> flat;
  if (!val.place.archive) {
    val.left_out = {};
    flat = image_files(fs::path(val.place.root), val.left_out);
    val.place.flat = true;
  }
  for (auto& [name, files] : val.files)
    if (val.place.archive) std::ranges::move(files, std::back_inserter(flat));
  val.files = sort_into_classes(std::move(flat), labels, known, val.place.root);
}

std::shared_ptr<ImageFiles> list_images(FoundPart part, const std::vector<std::string>& class_names) {
  LeftOut left_out = std::move(part.left_out);
  std::vector<std::vector<ImageFile>> files;
  for (const std::string& name : class_names) files.push_back(std::move(part.files[name]));
  const std::string root = part.place.root;
  auto images = std::make_shared<ImageFiles>("ImageNet", std::move(part.place), class_names, files);
  const std::string text = left_out.text(), remedy = left_out.remedy();
  AB_CHECK_KIND(data, images->count > 0,
                "imagenet: there are no images (.JPEG, .jpg, .png) in the class folders of '{}'{}", printable(root),
                left_out.files() == 0 ? "" : fmt::format(", but {}; {}", text, remedy));
  if (const std::int64_t skipped = left_out.files(); skipped > 0)
    images->warnings.push_back(fmt::format("imagenet: {} in '{}' {} left out: {}; to use such files, {}",
                                           skipped == 1 ? "1 file" : fmt::format("{} files", skipped), printable(root),
                                           skipped == 1 ? "is" : "are", text, remedy));
  images->height = images->width = kSideSeen;
  images->cropping = Cropping::resized;
  images->mean = {0.485f, 0.456f, 0.406f};
  images->stddev = {0.229f, 0.224f, 0.225f};
  return images;
}

/// The classes of train or val, in order of their names' bytes.
std::vector<std::string> classes_of(const FoundPart& part) {
  std::vector<std::string> names;
  for (const auto& [name, files] : part.files)
    if (!name.empty()) names.push_back(name);
  AB_CHECK_KIND(
      data, !names.empty(), "imagenet: '{}' has no class folders{}; sort its images into one folder for each class",
      printable(part.place.root), part.left_out.files() == 0 ? "" : fmt::format(", but {}", part.left_out.text()));
  AB_CHECK_KIND(data, names.size() <= kMaxClasses, "imagenet: '{}' has {} class folders, expected 1 to {}",
                printable(part.place.root), names.size(), kMaxClasses);
  return names;
}

void check_train_classes(const ImageFiles& train, const fs::path& folder) {
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
                       const std::string& val) {
  AB_CHECK_KIND(
      data, std::ranges::any_of(tested, [&](const std::string& name) { return is_known(known, name); }),
      "imagenet: no folder in '{}' ('{}' is the first) is named as a class of train; sort its images into one "
      "folder for each class, as train has",
      printable(val), printable(tested.front()));
  for (const std::string& name : tested)
    AB_CHECK_KIND(data, is_known(known, name),
                  "imagenet: val has the class '{}', which train lacks; give both the same classes", printable(name));
}

}  // namespace

ImageFiles::ImageFiles(std::string set_name, ImagePlace place, std::vector<std::string> class_names,
                       const std::vector<std::vector<ImageFile>>& files_of_class)
    : place_(std::move(place)), class_names_(std::move(class_names)) {
  name = std::move(set_name);
  classes = static_cast<int>(class_names_.size());
  for (std::size_t label = 0; label < files_of_class.size(); ++label)
    for (const ImageFile& file : files_of_class[label]) {
      name_begins_.push_back(static_cast<std::uint32_t>(file_names_.size()));
      labels_.push_back(static_cast<std::uint16_t>(label));
      file_names_ += file.name;
      if (place_.archive) offsets_.push_back(file.offset), bytes_.push_back(file.bytes);
    }
  AB_CHECK_KIND(data, file_names_.size() <= std::numeric_limits<std::uint32_t>::max(),
                "imagenet: '{}' holds more images than can be listed", printable(place_.root));
  name_begins_.push_back(static_cast<std::uint32_t>(file_names_.size()));
  count = static_cast<std::int64_t>(labels_.size());
}

void ImageFiles::thin_out(std::int64_t n) {
  if (n <= 0 || n >= count) return;
  std::string names;
  std::vector<std::uint32_t> begins;
  std::vector<std::uint16_t> labels;
  std::vector<std::int64_t> offsets, bytes;
  for (std::int64_t k = 0; k < n; ++k) {
    const auto i = static_cast<std::size_t>(k * count / n);
    begins.push_back(static_cast<std::uint32_t>(names.size()));
    labels.push_back(labels_[i]);
    if (place_.archive) offsets.push_back(offsets_[i]), bytes.push_back(bytes_[i]);
    names.append(file_names_, name_begins_[i], name_begins_[i + 1] - name_begins_[i]);
  }
  begins.push_back(static_cast<std::uint32_t>(names.size()));
  file_names_ = std::move(names);
  name_begins_ = std::move(begins);
  labels_ = std::move(labels);
  offsets_ = std::move(offsets), bytes_ = std::move(bytes);
  count = n;
}

std::string ImageFiles::path(std::int64_t i) const {
  const auto k = static_cast<std::size_t>(i);
  const std::string file = file_names_.substr(name_begins_[k], name_begins_[k + 1] - name_begins_[k]);
  return place_.flat ? fmt::format("{}/{}", place_.root, file)
                     : fmt::format("{}/{}/{}", place_.root, class_names_[labels_[k]], file);
}

ImageView ImageFiles::read(std::int64_t i, Image& buffer, const ChoosePart& part) const {
  const std::string file = path(i);
  const auto bytes = [&] {
    if (!place_.archive) return read_bytes(file);
    const auto k = static_cast<std::size_t>(i);
    AB_CHECK_KIND(data, static_cast<std::uintmax_t>(bytes_[k]) <= kMaxFileBytes,
                  "imagenet: cannot read '{}': it is too large to be an image of a data set", printable(file));
    return place_.archive->read(offsets_[k], bytes_[k], file);
  };
  decode_image(read_with_patience(bytes), printable(file), buffer, part);
  return buffer.view();
}

std::int64_t ImageFiles::file_bytes(std::int64_t i) const {
  if (place_.archive) return bytes_[static_cast<std::size_t>(i)];
  std::error_code error;  // an image that is gone is reported when it is read
  return static_cast<std::int64_t>(fs::file_size(path(i), error));
}

std::uint64_t ImageFiles::fingerprint() const {
  std::string names = file_names_;
  for (const std::string& name : class_names_) names += '/' + name;
  return Dataset::fingerprint() ^ std::hash<std::string>{}(names);
}

std::vector<std::uint64_t> ImageFiles::contents() const {
  std::vector<std::uint64_t> sizes;
  const std::int64_t asked = std::min(count, kSizesAsked);
  for (std::int64_t k = 0; k < asked; ++k) sizes.push_back(static_cast<std::uint64_t>(file_bytes(k * count / asked)));
  return sizes;
}

TrainAndTest load_imagenet(const std::string& folder, std::int64_t train_count, std::int64_t val_count) {
  FoundPart train_part = find_part(folder, "train"), val_part = find_part(folder, "val");
  const std::string train_root = train_part.place.root, val_root = val_part.place.root;
  const std::vector<std::string> class_names = classes_of(train_part);
  const auto train = list_images(std::move(train_part), class_names);
  check_train_classes(*train, train_root);
  take_labels(val_part, folder, class_names);
  check_val_classes(classes_of(val_part), class_names, val_root);
  const auto val = list_images(std::move(val_part), class_names);
  if (const std::vector<int> missing = labels_without_images(*val); !missing.empty())
    val->warnings.push_back(fmt::format("imagenet: val has no images of {} of {} classes, '{}' first", missing.size(),
                                        class_names.size(),
                                        printable(class_names[static_cast<std::size_t>(missing.front())])));
  if (class_names.size() == 1)
    train->warnings.push_back(fmt::format(
        "imagenet: '{}' has the images of one class, '{}', and so nothing to tell apart; sort them into one folder for each "
        "class",
        printable(train_root), printable(class_names.front())));
  train->thin_out(train_count);
  val->thin_out(val_count);
  return {train, val};
}

}  // namespace ab
