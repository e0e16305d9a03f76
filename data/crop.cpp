// SPDX-License-Identifier: MIT
#include "data/crop.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "data/draws.h"
#include "engine/core/random.h"

namespace ab {
namespace {

constexpr std::uint64_t kPaddedStream = std::uint64_t{0x61756772} << 32;   // "augr", then the epoch
constexpr std::uint64_t kResizedStream = std::uint64_t{0x63726f70} << 32;  // "crop", then the epoch

void mirror(std::uint8_t* row, int width) {
  for (std::uint8_t *left = row, *right = row + 3 * (width - 1); left < right; left += 3, right -= 3)
    std::swap_ranges(left, left + 3, right);
}

int rounded(double v) { return static_cast<int>(std::nearbyint(v)); }  // to even, as Python's round()

}  // namespace

PaddedCrop draw_padded_crop(std::uint64_t seed, std::int64_t epoch, std::int64_t sample) {
  const Philox random{seed, kPaddedStream + static_cast<std::uint64_t>(epoch)};
  const Philox::Block block = random.block(static_cast<std::uint64_t>(sample));
  constexpr std::uint64_t kOffsets = 2 * kCropPadding + 1;
  const auto offset = [](std::uint32_t bits) { return static_cast<int>((bits * kOffsets) >> 32); };
  return {.dy = offset(block.v[0]), .dx = offset(block.v[1]), .flip = (block.v[2] >> 31) != 0};
}

void padded_crop(const ImageView& image, const PaddedCrop& crop, Image& out) {
  out.resize(image.height, image.width);
  const int width = image.width, shift_x = crop.dx - kCropPadding, shift_y = crop.dy - kCropPadding;
  // Columns [begin, end) come from the image, the rest is padding.
  const int begin = std::clamp(-shift_x, 0, width), end = std::clamp(width - shift_x, begin, width);
  for (int y = 0; y < image.height; ++y) {
    std::uint8_t* row = out.row(y);
    std::memset(row, 0, image.row_bytes());
    const int source_y = y + shift_y;
    if (source_y < 0 || source_y >= image.height || begin == end) continue;
    std::memcpy(row + 3 * begin, image.row(source_y) + 3 * (begin + shift_x),
                3 * static_cast<std::size_t>(end - begin));
    if (crop.flip) mirror(row, width);
  }
}

ResizedCrop draw_resized_crop(std::uint64_t seed, std::int64_t epoch, std::int64_t sample, int height, int width) {
  constexpr double kMinArea = 0.08, kMaxArea = 1, kMinRatio = 3.0 / 4, kMaxRatio = 4.0 / 3;
  Draws draws(seed, kResizedStream + static_cast<std::uint64_t>(epoch), sample);
  const bool flip = draws.coin();
  const double area = static_cast<double>(height) * width;
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double target = area * draws.uniform(kMinArea, kMaxArea);
    const double ratio = std::exp(draws.uniform(std::log(kMinRatio), std::log(kMaxRatio)));
    const int w = rounded(std::sqrt(target * ratio)), h = rounded(std::sqrt(target / ratio));
    if (w < 1 || w > width || h < 1 || h > height) continue;
    const int top = draws.below(height - h + 1);
    return {{top, draws.below(width - w + 1), h, w}, flip};
  }
  int h = height, w = width;
  if (w < kMinRatio * h) h = rounded(w / kMinRatio);
  else if (w > kMaxRatio * h) w = rounded(h * kMaxRatio);
  return {{(height - h) / 2, (width - w) / 2, h, w}, flip};
}

void resized_crop(const ImageView& image, const ResizedCrop& crop, int height, int width, Resizer& resizer,
                  Image& out) {
  resizer.resize(image, crop.box, height, width, out);
  if (!crop.flip) return;
  for (int y = 0; y < height; ++y) mirror(out.row(y), width);
}

void centre_crop(const ImageView& image, int height, int width, Resizer& resizer, Image& out) {
  // The longer side is cut to a whole number, as torchvision does.
  const int shorter = std::min(height, width) * 256 / 224;
  const bool wide = image.width > image.height;
  const int longer = static_cast<int>(std::int64_t{shorter} * std::max(image.width, image.height) /
                                      std::min(image.width, image.height));
  const int full_height = wide ? shorter : longer, full_width = wide ? longer : shorter;
  const Box part{rounded((full_height - height) / 2.0), rounded((full_width - width) / 2.0), height, width};
  resizer.resize(image, {0, 0, image.height, image.width}, full_height, full_width, part, out);
}

}  // namespace ab
