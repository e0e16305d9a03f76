// SPDX-License-Identifier: MIT
#include "data/augment.h"

#include <algorithm>
#include <cstring>

#include "engine/core/check.h"
#include "engine/core/random.h"

namespace ab {
namespace {

constexpr std::uint64_t kAugmentStream = std::uint64_t{0x61756772} << 32;  // "augr", then the epoch

void reverse_pixels(std::uint8_t* row, int width) {
  for (std::uint8_t *left = row, *right = row + 3 * (width - 1); left < right; left += 3, right -= 3)
    std::swap_ranges(left, left + 3, right);
}

}  // namespace

Augmentation draw_augmentation(std::uint64_t seed, std::int64_t epoch, std::int64_t sample) {
  const Philox random{seed, kAugmentStream + static_cast<std::uint64_t>(epoch)};
  const Philox::Block block = random.block(static_cast<std::uint64_t>(sample));
  constexpr std::uint64_t kOffsets = 2 * kCropPadding + 1;
  const auto offset = [](std::uint32_t bits) { return static_cast<int>((bits * kOffsets) >> 32); };
  return {.dy = offset(block.v[0]), .dx = offset(block.v[1]), .flip = (block.v[2] >> 31) != 0};
}

ImagePreparer::ImagePreparer(int height, int width, const std::array<float, 3>& mean,
                             const std::array<float, 3>& stddev)
    : height_(height), width_(width) {
  for (std::size_t c = 0; c < 3; ++c)
    AB_CHECK(stddev[c] > 0, "the standard deviation of channel {} must be above 0, got {}", c, stddev[c]);
  for (int x = 0; x < width; ++x)
    for (std::size_t c = 0; c < 3; ++c) {
      scale_.push_back(1.0f / (255.0f * stddev[c]));
      shift_.push_back(-mean[c] / stddev[c]);
    }
  row_.resize(scale_.size());
}

const std::uint8_t* ImagePreparer::cropped_row(std::span<const std::uint8_t> image,
                                               const Augmentation& augmentation, int y) {
  const std::size_t row_bytes = row_.size();
  const int source_y = y + augmentation.dy - kCropPadding, shift_x = augmentation.dx - kCropPadding;
  const bool inside = source_y >= 0 && source_y < height_;
  const std::uint8_t* source =
      inside ? image.data() + static_cast<std::size_t>(source_y) * row_bytes : nullptr;
  if (inside && shift_x == 0 && !augmentation.flip) return source;

  std::memset(row_.data(), 0, row_bytes);
  if (!inside) return row_.data();
  // Columns [begin, end) come from the image, the rest is padding.
  const int begin = std::clamp(-shift_x, 0, width_), end = std::clamp(width_ - shift_x, begin, width_);
  if (begin < end)
    std::memcpy(row_.data() + 3 * begin, source + 3 * (begin + shift_x),
                3 * static_cast<std::size_t>(end - begin));
  if (augmentation.flip) reverse_pixels(row_.data(), width_);
  return row_.data();
}

void ImagePreparer::prepare(std::span<const std::uint8_t> image, const Augmentation& augmentation,
                            float* out) {
  AB_ASSERT(image.size() == static_cast<std::size_t>(height_) * row_.size());
  const std::size_t row_size = row_.size();
  const float *scale = scale_.data(), *shift = shift_.data();
  for (int y = 0; y < height_; ++y, out += row_size) {
    const std::uint8_t* row = cropped_row(image, augmentation, y);
#pragma omp simd
    for (std::size_t i = 0; i < row_size; ++i) out[i] = static_cast<float>(row[i]) * scale[i] + shift[i];
  }
}

}  // namespace ab
