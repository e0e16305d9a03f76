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
#include "data/image_list.h"
#include "engine/core/check.h"
#include "engine/core/hash.h"

namespace ab {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kSizesAsked = 1000;  // of files, to tell data sets of the same names apart

std::vector<std::uint8_t> read_bytes(const std::string& path) {
  const auto check = [&](bool good, const char* reason) {
    AB_CHECK_KIND(data, good, "imagenet: cannot read '{}': {}", printable(path), reason);
  };
  std::error_code error;
  const std::uintmax_t size = fs::file_size(path, error);
  check(!error, error.message().c_str());
  check(size <= kMaxImageFileBytes, "it is too large to be an image of a data set");
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
      if (!place_.archives.empty()) places_.push_back(file);
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
  std::vector<TarPlace> places;
  for (std::int64_t k = 0; k < n; ++k) {
    const auto i = static_cast<std::size_t>(k * count / n);
    begins.push_back(static_cast<std::uint32_t>(names.size()));
    labels.push_back(labels_[i]);
    if (!places_.empty()) places.push_back(places_[i]);
    names.append(file_names_, name_begins_[i], name_begins_[i + 1] - name_begins_[i]);
  }
  begins.push_back(static_cast<std::uint32_t>(names.size()));
  file_names_ = std::move(names);
  name_begins_ = std::move(begins);
  labels_ = std::move(labels);
  places_ = std::move(places);
  count = n;
}

std::string ImageFiles::file_name(std::int64_t i) const {
  const auto k = static_cast<std::size_t>(i);
  const std::string_view name(file_names_.data() + name_begins_[k], name_begins_[k + 1] - name_begins_[k]);
  return std::string(place_.listed ? last_part(name) : name);
}

std::string ImageFiles::path(std::int64_t i) const {
  const auto k = static_cast<std::size_t>(i);
  if (place_.listed)
    return (fs::path(place_.root).parent_path() /
            file_names_.substr(name_begins_[k], name_begins_[k + 1] - name_begins_[k]))
        .string();
  const std::string& root = places_.empty() ? place_.root : place_.archives[places_[k].archive]->path();
  return place_.flat ? fmt::format("{}/{}", root, file_name(i))
                     : fmt::format("{}/{}/{}", root, class_names_[labels_[k]], file_name(i));
}

std::vector<std::uint8_t> ImageFiles::file(std::int64_t i) const {
  const std::string name = path(i);
  if (places_.empty()) return read_with_patience([&] { return read_bytes(name); });
  const TarPlace& place = places_[static_cast<std::size_t>(i)];
  AB_CHECK_KIND(data, place.bytes <= kMaxImageFileBytes,
                "imagenet: cannot read '{}': it is too large to be an image of a data set", printable(name));
  const TarArchive& archive = *place_.archives[place.archive];
  const std::vector<std::uint8_t> bytes =
      read_with_patience([&] { return archive.read(place.offset, place.bytes, name); });
  AB_CHECK_KIND(
      data, place.source_bytes < 0 || hash64(bytes.data(), bytes.size()) == place.hash,
      "{}: its bytes are not those that the index of the archive was made of: it is damaged, or the archive was "
      "changed; remove the archive and pack it again, or where it is to be so, remove its index",
      printable(name));
  return bytes;
}

ImageView ImageFiles::read(std::int64_t i, Image& buffer, const ChoosePart& part) const {
  return decode_image(file(i), printable(path(i)), buffer, part);
}

std::int64_t ImageFiles::file_bytes(std::int64_t i) const {
  if (!places_.empty()) {
    const TarPlace& place = places_[static_cast<std::size_t>(i)];
    return place.source_bytes < 0 ? place.bytes : place.source_bytes;
  }
  std::error_code error;  // an image that is gone is reported when it is read
  return static_cast<std::int64_t>(fs::file_size(path(i), error));
}

std::uint64_t ImageFiles::fingerprint() const {
  std::string names;
  if (place_.listed)
    for (std::int64_t i = 0; i < count; ++i) names += file_name(i);
  else names = file_names_;
  for (const std::string& name : class_names_) names += '/' + name;
  return Dataset::fingerprint() ^ std::hash<std::string>{}(names);
}

std::vector<std::uint64_t> ImageFiles::contents() const {
  std::vector<std::uint64_t> sizes;
  const std::int64_t asked = std::min(count, kSizesAsked);
  std::int64_t gone = 0;
  std::string first_gone;
  for (std::int64_t k = 0; k < asked; ++k) {
    const std::int64_t i = k * count / asked, bytes = file_bytes(i);
    if (bytes < 0 && gone++ == 0) first_gone = path(i);
    sizes.push_back(static_cast<std::uint64_t>(bytes));
  }
  AB_CHECK_KIND(data, 2 * gone <= asked,
                "imagenet: {} of {} files that were looked at are not there, '{}' first: is their disk mounted?", gone,
                asked, printable(first_gone));
  return sizes;
}

}  // namespace ab
