#pragma once
// SPDX-License-Identifier: MIT
//
// From bytes to the numbers that a model sees, channel by channel:
//
//   (byte / 255 - mean) / stddev = byte · scale + shift

#include <cmath>
#include <cstdint>

#include "data/dataset.h"
#include "engine/core/host_device.h"

namespace ab {

struct Normalisation {
  float scale[3], shift[3];
};

/// With the mean and deviation of `set`.
inline Normalisation normalisation_of(const Dataset& set) {
  Normalisation result;
  for (std::size_t c = 0; c < 3; ++c) {
    result.scale[c] = 1.0f / (255.0f * set.stddev[c]);
    result.shift[c] = -set.mean[c] / set.stddev[c];
  }
  return result;
}

/// Rounded once, so that every processor has the same bits.
AB_HD inline float normalised(std::uint8_t byte, float scale, float shift) {
  return std::fma(static_cast<float>(byte), scale, shift);
}

}  // namespace ab
