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
constexpr int kLowerBits = 12;   // of a weight
constexpr std::int32_t kHalf = 1 << (kWeightBits - 1);

// Vectors of GCC and Clang: sums, and two bytes for each, of 8 or 16 bits.
constexpr int kLanes = 8;
using Bytes [[gnu::vector_size(kLanes)]] = std::uint8_t;
using BytePairs [[gnu::vector_size(2 * kLanes)]] = std::uint8_t;
using Words [[gnu::vector_size(2 * kLanes)]] = std::uint16_t;
using WordPairs [[gnu::vector_size(4 * kLanes)]] = std::uint16_t;
using Eights [[gnu::vector_size(2 * kLanes)]] = std::uint64_t;
using Sums [[gnu::vector_size(4 * kLanes)]] = std::int32_t;

/// Each lane holds a pair in its two halves.
Sums widened(const BytePairs& pairs) {
#ifdef __AVX2__
  return reinterpret_cast<Sums>(_mm256_cvtepu8_epi16(reinterpret_cast<__m128i>(pairs)));
#else
  return reinterpret_cast<Sums>(__builtin_convertvector(pairs, WordPairs));
#endif
}

/// The halves of each lane multiplied, and both products added.
Sums multiplied(const Sums& a, std::int32_t b) {
  const Sums weights = Sums{} + b;
#ifdef __AVX2__
  return reinterpret_cast<Sums>(_mm256_madd_epi16(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(weights)));
#else
  return (a & 0xffff) * ((weights << 16) >> 16) + (a >> 16) * (weights >> 16);
#endif
}

// Weights add up to 1 but for their rounding; some of a cubic are negative, and a sum may leave the range of a byte.
Bytes rounded(const Sums& sums) {
  const Sums values = sums >> kWeightBits;
#ifdef __AVX2__
  const auto all = reinterpret_cast<__m256i>(values);
  const __m128i words = _mm_packus_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
  return reinterpret_cast<Bytes>(_mm_cvtsi128_si64(_mm_packus_epi16(words, words)));
#else
  const Sums least{}, most = least + 255, from_0 = values < least ? least : values;
  return __builtin_convertvector(__builtin_convertvector(from_0 > most ? most : from_0, Words), Bytes);
#endif
}

/// A weighted sum of 8 bytes at a time. A weight has more bits than the products of halves take: the upper ones are summed apart.
struct WeightedSum {
  Sums upper{}, lower = Sums{} + kHalf;

  template <class Weights> void add(const BytePairs& pairs, const Weights& weights) {
    const Sums values = widened(pairs);
    upper += multiplied(values, weights.upper);
    lower += multiplied(values, weights.lower);
  }
  Bytes result() const { return rounded((upper << kLowerBits) + lower); }
};

/// The weight of what lies `x` away, by distances of a pixel where nothing shrinks.
double weight_at(Interpolation interpolation, double x) {
  x = std::abs(x);
  if (interpolation == Interpolation::bilinear) return std::max(0.0, 1.0 - x);
  constexpr double a = -0.5;  // Keys 1981
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

/// Rows that are scaled at once, in four lanes each.
constexpr int kRows = kLanes / 4;

/// Of each row two pixels, one after the other: pairs of their reds, greens and blues. `end`: of what can be read.
template <bool at_end>
BytePairs pixel_pairs(const std::array<const std::uint8_t*, kRows>& rows, int x, const std::uint8_t* end) {
  Eights bytes{};
  for (std::size_t y = 0; y < kRows; ++y) {
    const std::uint8_t* pixel = rows[y] + 3 * x;
    std::uint64_t eight = 0;
    std::memcpy(&eight, pixel, at_end ? static_cast<std::size_t>(std::min<std::ptrdiff_t>(8, end - pixel)) : 8);
    bytes[y] = eight;
  }
  const auto two = reinterpret_cast<BytePairs>(bytes);
  return __builtin_shufflevector(two, two, 0, 3, 1, 4, 2, 5, 6, 7, 8, 11, 9, 12, 10, 13, 14, 15);
}

std::size_t padded(std::size_t row_bytes) { return (row_bytes + 4 * kLanes - 1) / (2 * kLanes) * (2 * kLanes); }

}  // namespace

void Resizer::plan(int source_size, int full_size, int first, int count, Axis& axis) const {
  const double scale = static_cast<double>(source_size) / full_size;
  const double pixel = std::max(scale, 1.0), half_width = (interpolation_ == Interpolation::bicubic ? 2 : 1) * pixel;
  axis.windows.clear();
  axis.weights.clear();
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
    axis.windows.push_back({begin, end - begin, axis.weights.size()});
    if (weights.size() % 2 != 0) weights.push_back(0);
    const auto whole = [&](double w) {
      return static_cast<std::int32_t>(std::copysign(0.5, w) + w / sum * (1 << kWeightBits));
    };
    const auto pair = [](std::int32_t a, std::int32_t b) { return (a & 0xffff) | b * (1 << 16); };
    constexpr std::int32_t kLower = (1 << kLowerBits) - 1;
    for (std::size_t k = 0; k < weights.size(); k += 2) {
      const std::int32_t a = whole(weights[k]), b = whole(weights[k + 1]);
      axis.weights.push_back({pair(a >> kLowerBits, b >> kLowerBits), pair(a & kLower, b & kLower)});
    }
  }
}

/// Rows [first_row, first_row + rows) of the box, scaled horizontally, some at a time; the last of them perhaps twice.
void Resizer::scale_rows(const ImageView& source, const Box& from, int first_row, int rows) {
  const std::size_t row_bytes = padded(3 * across_.windows.size());
  scaled_rows_.resize(static_cast<std::size_t>(rows) * row_bytes);
  const std::uint8_t* const end = source.end();
  const auto scale = [&]<bool at_end>(int y, std::bool_constant<at_end>) {
    std::array<const std::uint8_t*, kRows> in;
    std::array<std::uint8_t*, kRows> out;
    for (std::size_t i = 0; i < kRows; ++i) {
      const int row = std::min(y + static_cast<int>(i), rows - 1);
      in[i] = source.row(from.top + first_row + row) + 3 * from.left;
      out[i] = scaled_rows_.data() + static_cast<std::size_t>(row) * row_bytes;
    }
    for (const Window& w : across_.windows) {
      WeightedSum sum;
      const PairOfWeights* weights = across_.weights.data() + w.pairs;
      for (int k = 0; k < w.count; k += 2) sum.add(pixel_pairs<at_end>(in, w.first + k, end), *weights++);
      auto pixels = reinterpret_cast<std::uint64_t>(sum.result());
      for (std::uint8_t*& pixel : out) {  // the fourth byte is the next pixel's, or the padding's
        std::memcpy(pixel, &pixels, 4);
        pixels >>= 32, pixel += 3;
      }
    }
  };
  for (int y = 0; y < rows; y += kRows) {
    // Eight bytes reach into the next row, or of a single column into the one after.
    if (from.top + first_row + std::min(y + kRows, rows) >= source.height - 1) scale(y, std::true_type{});
    else scale(y, std::false_type{});
  }
}

void Resizer::scale_columns(int first_row, Image& out) const {
  const std::size_t row_bytes = out.view().row_bytes(), stride = padded(row_bytes);
  for (int y = 0; y < out.height; ++y) {
    const Window& w = down_.windows[static_cast<std::size_t>(y)];
    const std::uint8_t* in = scaled_rows_.data() + static_cast<std::size_t>(w.first - first_row) * stride;
    std::uint8_t* row = out.row(y);
    for (std::size_t i = 0; i < row_bytes; i += 2 * kLanes, in += 2 * kLanes) {
      WeightedSum left, right;
      const PairOfWeights* weights = down_.weights.data() + w.pairs;
      for (int k = 0; k < w.count; k += 2) {
        const std::uint8_t* first = in + static_cast<std::size_t>(k) * stride;
        BytePairs a, b;  // of two rows
        std::memcpy(&a, first, sizeof a), std::memcpy(&b, k + 1 < w.count ? first + stride : first, sizeof b);
        left.add(__builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23), *weights);
        right.add(__builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31),
                  *weights++);
      }
      const std::array<Bytes, 2> bytes{left.result(), right.result()};
      std::memcpy(row + i, &bytes, std::min(sizeof bytes, row_bytes - i));
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
