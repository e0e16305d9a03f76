// SPDX-License-Identifier: MIT
#include "data/random_erasing.h"

#include <algorithm>
#include <cmath>

#include "data/draws.h"

namespace ab {
namespace {

constexpr std::uint64_t kEraseStream = std::uint64_t{0x65726173} << 32;  // "eras", then the epoch

}  // namespace

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
