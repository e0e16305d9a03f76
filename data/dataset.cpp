// SPDX-License-Identifier: MIT
#include "data/dataset.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <string_view>

#include "engine/core/check.h"
#include "engine/core/hash.h"

namespace ab {

std::vector<std::uint8_t> Dataset::file(std::int64_t i) const { throw Bug(image_name(i) + " is in no file"); }

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

ImageView ImageSet::read(std::int64_t i, Image& /*buffer*/, const ChoosePart& part) const {
  const ImageView whole{image(i).data(), height, width};
  return part ? whole.part(part(height, width).box) : whole;
}

std::vector<std::uint64_t> ImageSet::contents() const { return {hash64(pixels.data(), pixels.size())}; }

namespace {

/// Some images of a set.
class Part final : public Dataset {
 public:
  Part(std::shared_ptr<const Dataset> whole, std::vector<std::int64_t> images)
      : Dataset(*whole), whole_(std::move(whole)), images_(std::move(images)) {
    count = std::ssize(images_);
  }

  int label(std::int64_t i) const override { return whole_->label(images_[static_cast<std::size_t>(i)]); }
  ImageView read(std::int64_t i, Image& buffer, const ChoosePart& part = {}) const override {
    return whole_->read(images_[static_cast<std::size_t>(i)], buffer, part);
  }
  std::vector<std::uint8_t> file(std::int64_t i) const override {
    return whole_->file(images_[static_cast<std::size_t>(i)]);
  }
  std::string image_name(std::int64_t i) const override {
    return whole_->image_name(images_[static_cast<std::size_t>(i)]);
  }
  bool reads_files() const override { return whole_->reads_files(); }
  void check() const override { whole_->check(); }
  std::uint64_t fingerprint() const override { return Dataset::fingerprint() + 5 * whole_->fingerprint(); }
  std::vector<std::uint64_t> contents() const override { return whole_->contents(); }

 private:
  std::shared_ptr<const Dataset> whole_;
  std::vector<std::int64_t> images_;
};

}  // namespace

std::int64_t left_to_train(std::int64_t images, std::int64_t held_out) {
  AB_CHECK(held_out < images, "--val-from-train {} of {} training images leaves none to train on", held_out, images);
  return images - held_out;
}

TrainAndTest hold_out(std::shared_ptr<const Dataset> set, std::int64_t n) {
  left_to_train(set->count, n);
  std::vector<std::int64_t> by_label(static_cast<std::size_t>(set->count)), test, train;
  std::iota(by_label.begin(), by_label.end(), std::int64_t{0});
  std::ranges::stable_sort(by_label, {}, [&](std::int64_t i) { return set->label(i); });
  // As i runs, the quotient below grows n times, evenly spread.
  for (std::int64_t i = 0; i < set->count; ++i)
    ((i + 1) * n / set->count > i * n / set->count ? test : train).push_back(by_label[static_cast<std::size_t>(i)]);
  std::ranges::sort(train), std::ranges::sort(test);
  const auto tested = std::make_shared<Part>(set, std::move(test));
  tested->warnings.clear();  // the other part has them
  return {std::make_shared<Part>(std::move(set), std::move(train)), tested};
}

std::vector<std::uint64_t> TrainAndTest::contents() const {
  std::vector<std::uint64_t> both = train->contents();
  for (const std::uint64_t hash : test->contents()) both.push_back(hash);
  return both;
}

std::uint64_t TrainAndTest::hash() const {
  const std::vector<std::uint64_t> of_all = contents();
  return hash64(of_all.data(), of_all.size() * sizeof of_all[0], fingerprint());
}

std::vector<int> labels_without_images(const Dataset& set) {
  std::vector<bool> seen(static_cast<std::size_t>(set.classes));
  int missing = set.classes;
  for (std::int64_t i = 0; i < set.count && missing > 0; ++i) {
    const auto label = static_cast<std::size_t>(set.label(i));
    missing -= !seen[label];
    seen[label] = true;
  }
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
