// SPDX-License-Identifier: MIT
#include "data/crop.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#ifdef __AVX2__
#include <immintrin.h>
#endif

#include "data/draws.h"
#include "engine/core/check.h"

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

Shift draw_padded_crop(const SampleKey& key) {
  constexpr int kPadding = 4;
  const Philox::Block block = key.random(kPaddedStream).block(key.counter());
  return {.dy = shift_below(block.v[0], kPadding), .dx = shift_below(block.v[1], kPadding), .flip = coin(block)};
}

Shift draw_shift(const SampleKey& key, int pixels) {
  const Philox::Block block = key.random(kShiftStream).block(key.counter());
  return {.dy = shift_below(block.v[0], pixels),
          .dx = shift_below(block.v[1], pixels),
          .flip = coin(Philox{key.seed, kFlipStream}.block(key.counter())) == (key.epoch % 2 == 0),
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

ResizedCrop draw_resized_crop(const SampleKey& key, int height, int width, double min_area) {
  constexpr double kMaxArea = 1, kMinRatio = 3.0 / 4, kMaxRatio = 4.0 / 3;
  Draws draws(key, kResizedStream);
  const bool flip = draws.coin();
  const double area = static_cast<double>(height) * width;
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double target = area * draws.uniform(min_area, kMaxArea);
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
  resizer.resize(image, crop.box, height, width, {0, 0, height, width}, out, crop.flip);
}

void centre_crop(const ImageView& image, int height, int width, Resizer& resizer, Image& out, int shorter) {
  if (shorter == 0) shorter = std::min(height, width) * 256 / 224;
  // The longer side is cut to a whole number, as torchvision does.
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

// Weights add up to 1 but for their rounding; some of a cubic are negative, and a sum may leave the range of a byte.
std::uint8_t to_byte(std::int32_t sum) { return static_cast<std::uint8_t>(std::clamp(sum >> kWeightBits, 0, 255)); }

// Vectors of GCC and Clang: bytes, and as many sums.
constexpr int kLanes = 8;
using Bytes [[gnu::vector_size(kLanes)]] = std::uint8_t;
using Words [[gnu::vector_size(2 * kLanes)]] = std::uint16_t;
using Sums [[gnu::vector_size(4 * kLanes)]] = std::int32_t;

/// GCC 12 does not find the instruction for it.
void widen(const Bytes& bytes, Sums& sums) {
#ifdef __AVX2__
  sums = reinterpret_cast<Sums>(_mm256_cvtepu8_epi32(_mm_set_epi64x(0, reinterpret_cast<long long>(bytes))));
#else
  sums = __builtin_convertvector(__builtin_convertvector(bytes, Words), Sums);
#endif
}

Bytes rounded(const Sums& sums) {
  const Sums values = sums >> kWeightBits, least{}, most = least + 255;
  const Sums from_0 = values < least ? least : values;
  return __builtin_convertvector(__builtin_convertvector(from_0 > most ? most : from_0, Words), Bytes);
}

/// The weight of what lies `x` away, by distances of a pixel where nothing shrinks.
double weight_at(Interpolation interpolation, double x) {
  x = std::abs(x);
  if (interpolation == Interpolation::bilinear) return std::max(0.0, 1.0 - x);
  constexpr double a = -0.5;  // Keys 1981
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

/// Pixels of as many rows, each with a byte of the next pixel.
constexpr int kRows = kLanes / 4;
using Pixels [[gnu::vector_size(4 * kRows)]] = std::uint32_t;

/// One output pixel of each row, from `count` source pixels. The last pixel of an image has no next one.
template <bool at_end>
Bytes scale_pixels(const std::array<const std::uint8_t*, kRows>& rows, int first, int count, const std::int32_t* weight,
                   const std::uint8_t* last) {
  Sums sums = Sums{} + kHalf;
  for (int k = 0; k < count; ++k) {
    Pixels pixels;
    for (int y = 0; y < kRows; ++y) {
      const std::uint8_t* pixel = rows[static_cast<std::size_t>(y)] + 3 * (first + k);
      std::uint32_t packed = 0;
      std::memcpy(&packed, pixel, at_end && pixel == last ? 3 : 4);
      pixels[y] = packed;
    }
    Sums values;
    widen(reinterpret_cast<Bytes>(pixels), values);
    sums += values * weight[k];
  }
  return rounded(sums);
}

}  // namespace

void Resizer::plan(int source_size, int full_size, int first, int count, Axis& axis) const {
  const double scale = static_cast<double>(source_size) / full_size;
  const double pixel = std::max(scale, 1.0), half_width = (interpolation_ == Interpolation::bicubic ? 2 : 1) * pixel;
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
      weights.push_back(weight_at(interpolation_, (x - centre + 0.5) / pixel));
      sum += weights.back();
    }
    axis.windows.push_back({begin, end - begin, axis.values.size()});
    for (const double w : weights)
      axis.values.push_back(static_cast<std::int32_t>(std::copysign(0.5, w) + w / sum * (1 << kWeightBits)));
  }
}

/// Rows [first_row, first_row + rows) of the box, scaled horizontally, some at a time; the last of them perhaps twice.
void Resizer::scale_rows(const ImageView& source, const Box& from, int first_row, int rows) {
  const std::size_t row_bytes = 3 * across_.windows.size();
  scaled_rows_.resize(static_cast<std::size_t>(rows) * row_bytes);
  const std::uint8_t* const last = source.pixels + source.bytes() - 3;
  for (int y = 0; y < rows; y += kRows) {
    std::array<const std::uint8_t*, kRows> in;
    std::array<std::uint8_t*, kRows> out;
    for (int i = 0; i < kRows; ++i) {
      const int row = std::min(y + i, rows - 1);
      in[static_cast<std::size_t>(i)] = source.row(from.top + first_row + row) + 3 * from.left;
      out[static_cast<std::size_t>(i)] = scaled_rows_.data() + static_cast<std::size_t>(row) * row_bytes;
    }
    const auto scale =
        from.top + first_row + std::min(y + kRows, rows) == source.height ? scale_pixels<true> : scale_pixels<false>;
    for (const Window& w : across_.windows) {
      const Bytes pixels = scale(in, w.first, w.count, across_.values.data() + w.weights, last);
      for (int i = 0; i < kRows; ++i)
        for (int c = 0; c < 3; ++c) *out[static_cast<std::size_t>(i)]++ = pixels[4 * i + c];
    }
  }
}

void Resizer::scale_columns(int first_row, Image& out) const {
  const auto row_bytes = static_cast<int>(out.view().row_bytes());
  for (int y = 0; y < out.height; ++y) {
    const Window& w = down_.windows[static_cast<std::size_t>(y)];
    const std::int32_t* weight = down_.values.data() + w.weights;
    const std::uint8_t* in = scaled_rows_.data() + (w.first - first_row) * static_cast<std::ptrdiff_t>(row_bytes);
    std::uint8_t* row = out.row(y);
    int i = 0;
    for (; i + kLanes <= row_bytes; i += kLanes) {
      Sums sums = Sums{} + kHalf;
      for (int k = 0; k < w.count; ++k) {
        Bytes bytes;
        std::memcpy(&bytes, in + k * row_bytes + i, sizeof bytes);
        Sums values;
        widen(bytes, values);
        sums += values * weight[k];
      }
      const Bytes bytes = rounded(sums);
      std::memcpy(row + i, &bytes, sizeof bytes);
    }
    for (; i < row_bytes; ++i) {
      std::int32_t sum = kHalf;
      for (int k = 0; k < w.count; ++k) sum += in[k * row_bytes + i] * weight[k];
      row[i] = to_byte(sum);
    }
  }
}

void Resizer::resize(const ImageView& source, const Box& from, int height, int width, const Box& part, Image& out,
                     bool mirrored) {
  AB_ASSERT(from.height > 0 && from.width > 0 && part.height > 0 && part.width > 0);
  AB_ASSERT(from.top >= 0 && from.top + from.height <= source.height);
  AB_ASSERT(from.left >= 0 && from.left + from.width <= source.width);
  AB_ASSERT(part.top >= 0 && part.top + part.height <= height && part.left >= 0 && part.left + part.width <= width);
  plan(from.width, width, part.left, part.width, across_);
  if (mirrored) std::ranges::reverse(across_.windows);
  plan(from.height, height, part.top, part.height, down_);
  const int first_row = down_.windows.front().first;
  const Window& last = down_.windows.back();
  scale_rows(source, from, first_row, last.first + last.count - first_row);
  out.resize(part.height, part.width);
  scale_columns(first_row, out);
}

}  // namespace ab
