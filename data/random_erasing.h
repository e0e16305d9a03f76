#pragma once
// SPDX-License-Identifier: MIT
//
// Random erasing (Zhong et al., 2020) as torchvision's RandomErasing(p, scale=(0.02, 0.33), ratio=(0.3, 3.3),
// value=0): a rectangle of the normalised image becomes the mean colour.

#include <cstdint>

#include "data/image.h"

namespace ab {

/// The rectangle by (seed, epoch, sample), or an empty one: with 1 - probability, or when ten attempts at 2 %
/// to 33 % of the area did not fit into the image.
Box draw_erasing(std::uint64_t seed, std::int64_t epoch, std::int64_t sample, double probability, int height,
                 int width);
/// Sets a box of `pixels`, [height, width, 3], to zero.
void erase(const Box& box, int width, float* pixels);

}  // namespace ab
