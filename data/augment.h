#pragma once
// SPDX-License-Identifier: MIT
//
// Augmentations of one image: RandAugment and TrivialAugment with their operations, colour jitter, and random erasing.

#include <array>
#include <cstdint>

#include "data/draws.h"
#include "data/image.h"

namespace ab {

// RandAugment (Cubuk et al., "RandAugment: Practical automated data augmentation with a reduced search
// space", 2020) and TrivialAugment (Müller and Hutter, 2021, arXiv 2103.10158) with the operations and strengths of torchvision,
// and of Pillow's pixels to the bit: nearest neighbour, black where the image ends.

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
  equalize,
  hue
};
inline constexpr int kImageOps = 14;  ///< all but hue, which colour jitter alone has
inline constexpr int kMaxMagnitude = 30;

/// How strong the largest magnitude is: as in RandAugment, or as in TrivialAugment.
enum class OpRange : std::uint8_t { usual, wide };

/// The strength of `op` at a magnitude of 0 … kMaxMagnitude: a shear, pixels to shift by, degrees, a change of a
/// factor of 1, bits that are kept, a threshold; 0 for operations without one.
double op_strength(OpRange range, ImageOp op, int magnitude, int height, int width);
/// Half of all images get -strength of these.
bool op_is_signed(ImageOp op);

/// Applies one operation to `image`, with `scratch` for what has to be kept meanwhile.
void apply_op(ImageOp op, double strength, Image& image, Image& scratch);

/// `operations` of them, one after the other, each drawn from all fourteen.
void rand_augment(const SampleKey& key, int operations, int magnitude, Image& image, Image& scratch);
/// One operation, drawn from all fourteen, of a magnitude drawn from all.
void trivial_augment(const SampleKey& key, Image& image, Image& scratch);

// Colour jitter as torchvision's ColorJitter(brightness, contrast, saturation, hue).

struct JitterStep {
  ImageOp op;
  double strength;  ///< of apply_op(): less 1 than torchvision's factor, or of hue that; 0: no step
};
/// The operations in the order drawn. Strengths are uniform in -most … most, but not below -1; `most`: of brightness, contrast,
/// saturation and hue.
std::array<JitterStep, 4> draw_color_jitter(const SampleKey& key, const std::array<double, 4>& most);

// Random erasing (Zhong et al., 2020) as torchvision's RandomErasing(p, scale=(0.02, 0.33), ratio=(0.3, 3.3),
// value=0): a rectangle of the normalised image becomes the mean colour.

/// The rectangle, or an empty one: with 1 - probability, or when ten attempts at 2 %
/// to 33 % of the area did not fit into the image.
Box draw_erasing(const SampleKey& key, double probability, int height, int width);
/// Sets a box of `pixels`, [height, width, 3], to zero.
void erase(const Box& box, int width, float* pixels);

}  // namespace ab
