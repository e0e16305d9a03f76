// SPDX-License-Identifier: MIT
#include "data/augment.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "data/draws.h"
#include "engine/core/check.h"

namespace ab {
namespace {

constexpr std::uint64_t kOpStream = std::uint64_t{0x72616e64} << 32;       // "rand", then the epoch
constexpr std::uint64_t kTrivialStream = std::uint64_t{0x74726976} << 32;  // "triv", then the epoch
constexpr std::uint64_t kJitterStream = std::uint64_t{0x6a697474} << 32;   // "jitt", then the epoch
constexpr std::uint64_t kEraseStream = std::uint64_t{0x65726173} << 32;    // "eras", then the epoch

/// Of the magnitudes from `first` to `last`, evenly spaced: PyTorch's linspace() in float32, from the nearer end.
double spaced(float first, float last, int magnitude) {
  const double step = (last - first) / kMaxMagnitude;
  const int left = kMaxMagnitude - magnitude;
  return static_cast<float>(magnitude < left ? first + step * magnitude : last - step * left);
}

void apply_random_op(Draws& draws, OpRange range, int magnitude, Image& image, Image& scratch) {
  const auto op = static_cast<ImageOp>(draws.below(kImageOps));
  const double strength = op_strength(range, op, magnitude, image.height, image.width);
  const bool negative = draws.coin() && op_is_signed(op);
  apply_op(op, negative ? -strength : strength, image, scratch);
}

}  // namespace

double op_strength(OpRange range, ImageOp op, int magnitude, int height, int width) {
  const bool wide = range == OpRange::wide;
  const auto up_to = [&](double last) { return spaced(0, static_cast<float>(last), magnitude); };
  const auto shift_of = [&](int side) { return std::trunc(up_to(wide ? 32 : 150.0 / 331 * side)); };
  switch (op) {
    case ImageOp::shear_x:
    case ImageOp::shear_y: return up_to(wide ? 0.99 : 0.3);
    case ImageOp::translate_x: return shift_of(width);
    case ImageOp::translate_y: return shift_of(height);
    case ImageOp::rotate: return up_to(wide ? 135 : 30);
    case ImageOp::brightness:
    case ImageOp::color:
    case ImageOp::contrast:
    case ImageOp::sharpness: return up_to(wide ? 0.99 : 0.9);
    case ImageOp::posterize: return 8 - std::nearbyint((wide ? 6.0 : 4.0) * magnitude / kMaxMagnitude);
    case ImageOp::solarize: return spaced(255, 0, magnitude);
    case ImageOp::identity:
    case ImageOp::auto_contrast:
    case ImageOp::equalize:
    case ImageOp::hue: return 0;
  }
  throw Bug("bug in abtrain: an image operation without a strength");
}

bool op_is_signed(ImageOp op) { return op >= ImageOp::shear_x && op <= ImageOp::sharpness; }

void rand_augment(const SampleKey& key, int operations, int magnitude, Image& image, Image& scratch) {
  Draws draws(key, kOpStream);
  for (int i = 0; i < operations; ++i) apply_random_op(draws, OpRange::usual, magnitude, image, scratch);
}

void trivial_augment(const SampleKey& key, Image& image, Image& scratch) {
  Draws draws(key, kTrivialStream);
  const int magnitude = draws.below(kMaxMagnitude + 1);
  apply_random_op(draws, OpRange::wide, magnitude, image, scratch);
}

std::array<JitterStep, 4> draw_color_jitter(const SampleKey& key, const std::array<double, 4>& most) {
  using enum ImageOp;
  Draws draws(key, kJitterStream);
  std::array<JitterStep, 4> steps{{{brightness, 0}, {contrast, 0}, {color, 0}, {hue, 0}}};
  for (std::size_t i = 0; i < steps.size(); ++i) steps[i].strength = draws.uniform(std::max(-most[i], -1.0), most[i]);
  for (std::size_t i = steps.size(); i-- > 1;)
    std::swap(steps[i], steps[static_cast<std::size_t>(draws.below(static_cast<int>(i) + 1))]);
  return steps;
}

Box draw_erasing(const SampleKey& key, double probability, int height, int width) {
  constexpr double kMinArea = 0.02, kMaxArea = 0.33, kMinRatio = 0.3, kMaxRatio = 3.3;
  Draws draws(key, kEraseStream);
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
