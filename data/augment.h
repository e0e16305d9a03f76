#pragma once
// SPDX-License-Identifier: MIT
//
// Augmentations of one image: RandAugment with its operations, and random erasing.

#include <cstdint>

#include "data/image.h"

namespace ab {

// RandAugment (Cubuk et al., "RandAugment: Practical automated data augmentation with a reduced search
// space", 2020) with the operations and strengths of torchvision, and of Pillow's pixels to the bit: nearest
// neighbour, black where the image ends.

enum class ImageOp : std::uint8_t {
  identity,
  shear_x,
  shear_y,
  translate_x,
  translate_y,
  rotate,
  brightness,
  color,
  contrast,
  sharpness,
  posterize,
  solarize,
  auto_contrast,
  equalize
};
inline constexpr int kImageOps = 14;

/// The strength of `op` at a magnitude of 0 … 30: a shear, pixels to shift by, degrees, a change of a
/// factor of 1, bits that are kept, a threshold; 0 for operations without one.
double op_strength(ImageOp op, int magnitude, int height, int width);
/// Half of all images get -strength of these.
bool op_is_signed(ImageOp op);

/// Applies one operation to `image`, with `scratch` for what has to be kept meanwhile.
void apply_op(ImageOp op, double strength, Image& image, Image& scratch);

/// `operations` of them, one after the other, each drawn from all fourteen by (seed, epoch, sample).
void rand_augment(std::uint64_t seed, std::int64_t epoch, std::int64_t sample, int operations, int magnitude,
                  Image& image, Image& scratch);

// Random erasing (Zhong et al., 2020) as torchvision's RandomErasing(p, scale=(0.02, 0.33), ratio=(0.3, 3.3),
// value=0): a rectangle of the normalised image becomes the mean colour.

/// The rectangle by (seed, epoch, sample), or an empty one: with 1 - probability, or when ten attempts at 2 %
/// to 33 % of the area did not fit into the image.
Box draw_erasing(std::uint64_t seed, std::int64_t epoch, std::int64_t sample, double probability, int height,
                 int width);
/// Sets a box of `pixels`, [height, width, 3], to zero.
void erase(const Box& box, int width, float* pixels);

}  // namespace ab
