#pragma once
// SPDX-License-Identifier: MIT
//
// Images of images.safetensors, which holds bytes as float32.

#include <gtest/gtest.h>

#include <algorithm>

#include "data/image.h"
#include "engine/core/tensor.h"

namespace ab::golden {

inline Image image_of(const Tensor& t) {
  Image image;
  image.resize(static_cast<int>(t.dim(0)), static_cast<int>(t.dim(1)));
  std::transform(t.data<float>(), t.data<float>() + t.numel(), image.pixels.begin(),
                 [](float v) { return static_cast<std::uint8_t>(v); });
  return image;
}

/// No byte deviates by more than `tolerance`.
inline void expect_same_image(const Image& got, const Tensor& expected, int tolerance = 0) {
  const Image want = image_of(expected);
  ASSERT_EQ(got.height, want.height);
  ASSERT_EQ(got.width, want.width);
  for (std::size_t i = 0; i < want.pixels.size(); ++i)
    ASSERT_LE(std::abs(got.pixels[i] - want.pixels[i]), tolerance)
        << "pixel " << i / 3 << ", channel " << i % 3 << " is " << int{got.pixels[i]} << ", expected "
        << int{want.pixels[i]};
}

}  // namespace ab::golden
