// SPDX-License-Identifier: MIT
#include "data/dataset.h"

#include <functional>
#include <string_view>

#include "engine/core/check.h"
#include "engine/core/hash.h"

namespace ab {

void Dataset::check() const {
  AB_CHECK_KIND(data, count > 0, "{}: the data set holds no images", name);
  for (std::size_t c = 0; c < 3; ++c)
    AB_CHECK_KIND(data, stddev[c] > 0, "{}: the standard deviation of channel {} must be above 0, got {}", name, c,
                  stddev[c]);
}

std::uint64_t Dataset::fingerprint() const {
  std::vector<std::uint16_t> all;
  for (std::int64_t i = 0; i < count; ++i) all.push_back(static_cast<std::uint16_t>(label(i)));
  return std::hash<std::string_view>{}({reinterpret_cast<const char*>(all.data()), 2 * all.size()});
}

void ImageSet::check() const {
  Dataset::check();
  const auto images = static_cast<std::size_t>(count), bytes = images * static_cast<std::size_t>(image_bytes());
  AB_CHECK_KIND(data, pixels.size() == bytes && labels.size() == images,
                "{}: {} images of {} bytes need {} bytes and as many labels, got {} bytes and {} labels", name, images,
                image_bytes(), bytes, pixels.size(), labels.size());
}

std::vector<std::uint64_t> ImageSet::contents() const { return {hash64(pixels.data(), pixels.size())}; }

std::vector<std::uint64_t> TrainAndTest::contents() const {
  std::vector<std::uint64_t> both = train->contents();
  for (const std::uint64_t hash : test->contents()) both.push_back(hash);
  return both;
}

std::vector<int> labels_without_images(const Dataset& set) {
  std::vector<bool> seen(static_cast<std::size_t>(set.classes));
  for (std::int64_t i = 0; i < set.count; ++i) seen[static_cast<std::size_t>(set.label(i))] = true;
  std::vector<int> without;
  for (int label = 0; label < set.classes; ++label)
    if (!seen[static_cast<std::size_t>(label)]) without.push_back(label);
  return without;
}

ImageSet first_images(ImageSet set, std::int64_t n) {
  if (n <= 0 || n >= set.count) return set;
  set.count = n;
  set.pixels.resize(static_cast<std::size_t>(n * set.image_bytes()));
  set.labels.resize(static_cast<std::size_t>(n));
  return set;
}

}  // namespace ab
