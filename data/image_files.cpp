// SPDX-License-Identifier: MIT
#include "data/image_files.h"

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

namespace ab {
namespace {

namespace fs = std::filesystem;

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
      if (place_.archives.empty()) continue;
      offsets_.push_back(file.offset), bytes_.push_back(file.bytes);
      archives_.push_back(file.archive);
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
  std::vector<std::uint16_t> labels, archives;
  std::vector<std::int64_t> offsets, bytes;
  for (std::int64_t k = 0; k < n; ++k) {
    const auto i = static_cast<std::size_t>(k * count / n);
    begins.push_back(static_cast<std::uint32_t>(names.size()));
    labels.push_back(labels_[i]);
    if (!place_.archives.empty())
      offsets.push_back(offsets_[i]), bytes.push_back(bytes_[i]), archives.push_back(archives_[i]);
    names.append(file_names_, name_begins_[i], name_begins_[i + 1] - name_begins_[i]);
  }
  begins.push_back(static_cast<std::uint32_t>(names.size()));
  file_names_ = std::move(names);
  name_begins_ = std::move(begins);
  labels_ = std::move(labels);
  offsets_ = std::move(offsets), bytes_ = std::move(bytes), archives_ = std::move(archives);
  count = n;
}

std::string ImageFiles::path(std::int64_t i) const {
  const auto k = static_cast<std::size_t>(i);
  const std::string file = file_names_.substr(name_begins_[k], name_begins_[k + 1] - name_begins_[k]);
  const std::string& root = place_.archives.empty() ? place_.root : place_.archives[archives_[k]]->path();
  return place_.flat ? fmt::format("{}/{}", root, file) : fmt::format("{}/{}/{}", root, class_names_[labels_[k]], file);
}

ImageView ImageFiles::read(std::int64_t i, Image& buffer, const ChoosePart& part) const {
  const std::string file = path(i);
  const auto bytes = [&] {
    if (place_.archives.empty()) return read_bytes(file);
    const auto k = static_cast<std::size_t>(i);
    AB_CHECK_KIND(data, static_cast<std::uintmax_t>(bytes_[k]) <= kMaxFileBytes,
                  "imagenet: cannot read '{}': it is too large to be an image of a data set", printable(file));
    return place_.archives[archives_[k]]->read(offsets_[k], bytes_[k], file);
  };
  decode_image(read_with_patience(bytes), printable(file), buffer, part);
  return buffer.view();
}

std::int64_t ImageFiles::file_bytes(std::int64_t i) const {
  if (!place_.archives.empty()) return bytes_[static_cast<std::size_t>(i)];
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

}  // namespace ab
