// SPDX-License-Identifier: MIT
#include "data/crop.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "data/draws.h"
#include "engine/core/check.h"
#include "engine/core/random.h"

namespace ab {
namespace {

constexpr std::uint64_t kPaddedStream = std::uint64_t{0x61756772} << 32;   // "augr", then the epoch
constexpr std::uint64_t kShiftStream = std::uint64_t{0x73686674} << 32;    // "shft", then the epoch
constexpr std::uint64_t kFlipStream = std::uint64_t{0x666c6970} << 32;     // "flip"
constexpr std::uint64_t kResizedStream = std::uint64_t{0x63726f70} << 32;  // "crop", then the epoch

void mirror(std::uint8_t* row, int width) {
  for (std::uint8_t *left = row, *right = row + 3 * (width - 1); left < right; left += 3, right -= 3)
    std::swap_ranges(left, left + 3, right);
}

/// -most … most, equally likely.
int shift_below(std::uint32_t bits, int most) {
  return static_cast<int>((bits * static_cast<std::uint64_t>(2 * most + 1)) >> 32) - most;
}

bool coin(const Philox::Block& block) { return (block.v[2] >> 31) != 0; }

int rounded(double v) { return static_cast<int>(std::nearbyint(v)); }  // to even, as Python's round()

}  // namespace

Shift draw_padded_crop(std::uint64_t seed, std::int64_t epoch, std::int64_t sample) {
  constexpr int kPadding = 4;
  const Philox random{seed, kPaddedStream + static_cast<std::uint64_t>(epoch)};
  const Philox::Block block = random.block(static_cast<std::uint64_t>(sample));
  return {.dy = shift_below(block.v[0], kPadding), .dx = shift_below(block.v[1], kPadding), .flip = coin(block)};
}

Shift draw_shift(std::uint64_t seed, std::int64_t epoch, std::int64_t sample, int pixels) {
  const auto draw = [&](std::uint64_t stream) {
    return Philox{seed, stream}.block(static_cast<std::uint64_t>(sample));
  };
  const Philox::Block block = draw(kShiftStream + static_cast<std::uint64_t>(epoch));
  return {.dy = shift_below(block.v[0], pixels),
          .dx = shift_below(block.v[1], pixels),
          .flip = coin(draw(kFlipStream)) == (epoch % 2 == 0),
          .reflects = true};
}

void shift(const ImageView& image, const Shift& by, Image& out) {
  out.resize(image.height, image.width);
  const int width = image.width;
  // Columns [begin, end) lie inside of the image.
  const int begin = std::clamp(-by.dx, 0, width), end = std::clamp(width - by.dx, begin, width);
  for (int y = 0; y < image.height; ++y) {
    std::uint8_t* row = out.row(y);
    int from_y = y + by.dy;
    if (by.reflects) from_y = reflected(from_y, image.height);
    const bool is_black = from_y < 0 || from_y >= image.height;
    if (is_black || (begin > 0 || end < width)) std::memset(row, 0, image.row_bytes());
    if (is_black) continue;
    const std::uint8_t* from = image.row(from_y);
    std::memcpy(row + 3 * begin, from + 3 * (begin + by.dx), 3 * static_cast<std::size_t>(end - begin));
    const auto reflect = [&](int x) { std::memcpy(row + 3 * x, from + 3 * reflected(x + by.dx, width), 3); };
    for (int x = 0; by.reflects && x < begin; ++x) reflect(x);
    for (int x = end; by.reflects && x < width; ++x) reflect(x);
    if (by.flip) mirror(row, width);
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

namespace {

constexpr int kWeightBits = 22;  // 32, less 8 of the pixels and 2 of headroom
constexpr std::int32_t kHalf = 1 << (kWeightBits - 1);

std::uint8_t to_byte(std::int32_t sum) { return static_cast<std::uint8_t>(std::clamp(sum >> kWeightBits, 0, 255)); }

}  // namespace

void Resizer::plan(int source_size, int full_size, int first, int count, Axis& axis) {
  const double scale = static_cast<double>(source_size) / full_size;
  const double half_width = std::max(scale, 1.0);
  axis.windows.clear();
  axis.values.clear();
  std::vector<double> weights;
  for (int i = first; i < first + count; ++i) {
    const double centre = (i + 0.5) * scale;
    const int begin = std::max(static_cast<int>(centre - half_width + 0.5), 0);
    const int end = std::min(static_cast<int>(centre + half_width + 0.5), source_size);
    double sum = 0;
    weights.clear();
    for (int x = begin; x < end; ++x) {
      weights.push_back(std::max(0.0, 1.0 - std::abs((x - centre + 0.5) / half_width)));
      sum += weights.back();
    }
    axis.windows.push_back({begin, end - begin, axis.values.size()});
    for (double w : weights) axis.values.push_back(static_cast<std::int32_t>(0.5 + w / sum * (1 << kWeightBits)));
  }
}

/// Rows [first_row, first_row + rows) of the box, scaled horizontally.
void Resizer::scale_rows(const ImageView& source, const Box& from, int first_row, int rows) {
  scaled_rows_.resize(rows, static_cast<int>(across_.windows.size()));
  for (int y = 0; y < rows; ++y) {
    const std::uint8_t* in = source.row(from.top + first_row + y) + 3 * from.left;
    std::uint8_t* out = scaled_rows_.row(y);
    for (const Window& w : across_.windows) {
      const std::uint8_t* pixel = in + 3 * w.first;
      const std::int32_t* weight = across_.values.data() + w.weights;
      std::int32_t r = kHalf, g = kHalf, b = kHalf;
      for (int k = 0; k < w.count; ++k, pixel += 3) {
        r += pixel[0] * weight[k];
        g += pixel[1] * weight[k];
        b += pixel[2] * weight[k];
      }
      *out++ = to_byte(r);
      *out++ = to_byte(g);
      *out++ = to_byte(b);
    }
  }
}

void Resizer::scale_columns(int first_row, Image& out) const {
  const std::size_t row_bytes = out.view().row_bytes();
  std::vector<std::int32_t> sums(row_bytes);
  for (int y = 0; y < out.height; ++y) {
    const Window& w = down_.windows[static_cast<std::size_t>(y)];
    std::fill(sums.begin(), sums.end(), kHalf);
    for (int k = 0; k < w.count; ++k) {
      const std::uint8_t* in = scaled_rows_.view().row(w.first - first_row + k);
      const std::int32_t weight = down_.values[w.weights + static_cast<std::size_t>(k)];
#pragma omp simd
      for (std::size_t i = 0; i < row_bytes; ++i) sums[i] += in[i] * weight;
    }
    std::uint8_t* row = out.row(y);
#pragma omp simd
    for (std::size_t i = 0; i < row_bytes; ++i) row[i] = to_byte(sums[i]);
  }
}

void Resizer::resize(const ImageView& source, const Box& from, int height, int width, const Box& part, Image& out) {
  AB_ASSERT(from.height > 0 && from.width > 0 && part.height > 0 && part.width > 0);
  AB_ASSERT(from.top >= 0 && from.top + from.height <= source.height);
  AB_ASSERT(from.left >= 0 && from.left + from.width <= source.width);
  AB_ASSERT(part.top >= 0 && part.top + part.height <= height && part.left >= 0 && part.left + part.width <= width);
  plan(from.width, width, part.left, part.width, across_);
  plan(from.height, height, part.top, part.height, down_);
  const int first_row = down_.windows.front().first;
  const Window& last = down_.windows.back();
  scale_rows(source, from, first_row, last.first + last.count - first_row);
  out.resize(part.height, part.width);
  scale_columns(first_row, out);
}

}  // namespace ab
