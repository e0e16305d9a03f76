#pragma once
// SPDX-License-Identifier: MIT
//
// Operations on the bytes of an image, in place, each with Pillow's rounding.

#include <array>

#include "data/image.h"

namespace ab {

/// out[y, x] = in[⌊d·(x+½) + e·(y+½) + f⌋, ⌊a·(x+½) + b·(y+½) + c⌋], black outside; {a, b, c, d, e, f}.
using Affine = std::array<double, 6>;
void warp(const Affine& to_source, Image& image, Image& scratch);
/// Turns counter-clockwise about the centre.
Affine rotation(double degrees, int height, int width);

/// image = other + factor · (image - other), where other is black; the pixel's grey; the mean grey of the
/// image; the image smoothed by 3 · 3 weights.
void adjust_brightness(double factor, Image& image);
void adjust_color(double factor, Image& image);
void adjust_contrast(double factor, Image& image);
void adjust_sharpness(double factor, Image& image, Image& scratch);

/// Keeps the upper `bits` of each byte.
void posterize(int bits, Image& image);
/// Inverts bytes that are not below the threshold.
void solarize(double threshold, Image& image);
/// Stretches each channel to 0 … 255.
void auto_contrast(Image& image);
/// Spreads each channel's values evenly over 0 … 255.
void equalize(Image& image);

}  // namespace ab
