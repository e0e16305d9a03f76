#pragma once
// SPDX-License-Identifier: MIT
//
// A data set in memory that has no meaning, for tests of what happens to pixels.

#include "data/dataset.h"
#include "engine/core/random.h"

namespace ab::test {

/// A set of images of random bytes, the number of an image readable from its label.
inline ImageSet random_set(std::int64_t count, int height, int width) {
  ImageSet set;
  set.name = "random";
  set.count = count;
  set.height = height;
  set.width = width;
  set.classes = 60000;
  const Philox random{7, 1};
  for (std::int64_t i = 0; i < count * set.image_bytes(); ++i)
    set.pixels.push_back(static_cast<std::uint8_t>(random.bits(static_cast<std::uint64_t>(i))));
  for (std::int64_t i = 0; i < count; ++i) set.labels.push_back(static_cast<std::uint16_t>(i));
  return set;
}
inline ImageSet random_set(std::int64_t count, int side = 32) { return random_set(count, side, side); }

}  // namespace ab::test
