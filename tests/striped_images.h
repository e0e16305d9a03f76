#pragma once
// SPDX-License-Identifier: MIT
//
// A data set in memory that a network learns within a few steps.

#include "data/dataset.h"
#include "engine/core/random.h"

namespace ab::test {

/// Images whose brightness in one of ten stripes gives the class away.
inline ImageSet striped_images(std::int64_t count, std::uint64_t seed) {
  ImageSet set;
  set.name = "stripes";
  set.count = count;
  set.height = set.width = 32;
  set.classes = 10;
  set.pixels.resize(static_cast<std::size_t>(count * set.image_bytes()));
  const Philox random{seed, 0};
  for (std::int64_t i = 0; i < count; ++i) {
    const int label = static_cast<int>(i % 10);
    set.labels.push_back(static_cast<std::uint16_t>(label));
    for (std::int64_t p = 0; p < set.image_bytes(); ++p) {
      const bool marked = p / 96 / 3 == label;
      set.pixels[static_cast<std::size_t>(i * set.image_bytes() + p)] =
          static_cast<std::uint8_t>((marked ? 128 : 0) + random.below(static_cast<std::uint64_t>(i * 4096 + p), 128));
    }
  }
  return set;
}

inline TrainAndTest striped_sets(std::int64_t train, std::int64_t test) {
  return {std::make_shared<ImageSet>(striped_images(train, 1)), std::make_shared<ImageSet>(striped_images(test, 2))};
}

}  // namespace ab::test
