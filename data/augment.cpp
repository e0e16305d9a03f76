// SPDX-License-Identifier: MIT
#include "data/augment.h"

#include <algorithm>
#include <cmath>

#include "data/draws.h"
#include "engine/core/check.h"

namespace ab {
namespace {

constexpr std::uint64_t kOpStream = std::uint64_t{0x72616e64} << 32;  // "rand", then the epoch

constexpr std::uint64_t kEraseStream = std::uint64_t{0x65726173} << 32;  // "eras", then the epoch

}  // namespace

double op_strength(ImageOp op, int magnitude, int height, int width) {
  const double part = magnitude / 30.0;
  constexpr double kMaxShift = 150.0 / 331;  // of a side
  switch (op) {
    case ImageOp::shear_x:
    case ImageOp::shear_y: return 0.3 * part;
    case ImageOp::translate_x: return std::trunc(kMaxShift * width * part);
    case ImageOp::translate_y: return std::trunc(kMaxShift * height * part);
    case ImageOp::rotate: return 30 * part;
    case ImageOp::brightness:
    case ImageOp::color:
    case ImageOp::contrast:
    case ImageOp::sharpness: return 0.9 * part;
    case ImageOp::posterize: return 8 - std::nearbyint(4 * part);
    case ImageOp::solarize: return 255 * (1 - part);
    case ImageOp::identity:
    case ImageOp::auto_contrast:
    case ImageOp::equalize: return 0;
  }
  throw Bug("bug in abtrain: an image operation without a strength");
}

bool op_is_signed(ImageOp op) { return op >= ImageOp::shear_x && op <= ImageOp::sharpness; }

void rand_augment(std::uint64_t seed, std::int64_t epoch, std::int64_t sample, int operations, int magnitude,
                  Image& image, Image& scratch) {
  Draws draws(seed, kOpStream + static_cast<std::uint64_t>(epoch), sample);
  for (int i = 0; i < operations; ++i) {
    const auto op = static_cast<ImageOp>(draws.below(kImageOps));
    const double strength = op_strength(op, magnitude, image.height, image.width);
    const bool negative = draws.coin() && op_is_signed(op);
    apply_op(op, negative ? -strength : strength, image, scratch);
  }
}

Box draw_erasing(std::uint64_t seed, std::int64_t epoch, std::int64_t sample, double probability, int height,
                 int width) {
  constexpr double kMinArea = 0.02, kMaxArea = 0.33, kMinRatio = 0.3, kMaxRatio = 3.3;
  Draws draws(seed, kEraseStream + static_cast<std::uint64_t>(epoch), sample);
  if (draws.uniform() >= probability) return {};
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double area = static_cast<double>(height) * width * draws.uniform(kMinArea, kMaxArea);
    const double ratio = std::exp(draws.uniform(std::log(kMinRatio), std::log(kMaxRatio)));
    const int h = static_cast<int>(std::nearbyint(std::sqrt(area * ratio)));
    const int w = static_cast<int>(std::nearbyint(std::sqrt(area / ratio)));
    if (h >= height || w >= width) continue;
    const int top = draws.below(height - h + 1);
    return {top, draws.below(width - w + 1), h, w};
  }
  return {};
}

void erase(const Box& box, int width, float* pixels) {
  for (int y = box.top; y < box.top + box.height; ++y)
    std::fill_n(pixels + 3 * (std::int64_t{y} * width + box.left), 3 * box.width, 0.0f);
}

}  // namespace ab
