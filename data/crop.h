#pragma once
// SPDX-License-Identifier: MIT
//
// Which part of an image a model sees, in torchvision's terms:
//   padded    RandomCrop(size, padding=4) with a black border, RandomHorizontalFlip()
//   resized   RandomResizedCrop(size, scale=(0.08, 1), ratio=(3/4, 4/3)), RandomHorizontalFlip()
//   centre    Resize(size · 256/224), CenterCrop(size): validation of what is trained on resized crops
// Draws are pure functions of (seed, epoch, sample).

#include <cstdint>

#include "data/image.h"
#include "data/resize.h"

namespace ab {

inline constexpr int kCropPadding = 4;

/// A window of the padded image. Offsets count within it: 0 … 2 · kCropPadding, and the default leaves the
/// image where it is.
struct PaddedCrop {
  int dy = kCropPadding, dx = kCropPadding;
  bool flip = false;
  bool operator==(const PaddedCrop&) const = default;
};

/// All offsets equally likely, every other image flipped.
PaddedCrop draw_padded_crop(std::uint64_t seed, std::int64_t epoch, std::int64_t sample);
/// out[y, x] = padded[y + dy, x' + dx],   x' = flip ? width-1-x : x;   out is as large as the image.
void padded_crop(const ImageView& image, const PaddedCrop& crop, Image& out);

struct ResizedCrop {
  Box box;
  bool flip = false;
  bool operator==(const ResizedCrop&) const = default;
};

/// A box of 8 % to 100 % of the area and of width : height between 3 : 4 and 4 : 3 (uniform in its
/// logarithm); the largest such box in the centre when ten attempts did not fit into the image.
ResizedCrop draw_resized_crop(std::uint64_t seed, std::int64_t epoch, std::int64_t sample, int height, int width);
/// The box, scaled to height · width, mirrored where that was drawn.
void resized_crop(const ImageView& image, const ResizedCrop& crop, int height, int width, Resizer& resizer, Image& out);

/// The centre of the image, scaled so that its shorter side is 256/224 of that of the result.
void centre_crop(const ImageView& image, int height, int width, Resizer& resizer, Image& out);

}  // namespace ab
