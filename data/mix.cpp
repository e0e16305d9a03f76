// SPDX-License-Identifier: MIT
#include "data/mix.h"

#include <algorithm>
#include <cmath>

#include "data/draws.h"

namespace ab {
namespace {

constexpr std::uint64_t kMixStream = std::uint64_t{0x6d697820} << 32;  // "mix ", then the epoch

void blend_rows(float* a, float* b, std::int64_t count, float share) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) {
    const float x = a[i], y = b[i];
    a[i] = blend(x, y, share);
    b[i] = blend(y, x, share);
  }
}

}  // namespace

Box cutmix_box(double lambda, int y, int x, int height, int width) {
  const double half = 0.5 * std::sqrt(1 - lambda);
  const int half_height = static_cast<int>(half * height), half_width = static_cast<int>(half * width);
  const int top = std::max(y - half_height, 0), left = std::max(x - half_width, 0);
  return {top, left, std::min(y + half_height, height) - top, std::min(x + half_width, width) - left};
}

Mix draw_mix(const MixOptions& options, std::uint64_t seed, std::int64_t epoch, std::int64_t batch, int height,
             int width) {
  if (!options.enabled()) return {};
  Draws draws(seed, kMixStream + static_cast<std::uint64_t>(epoch), batch);
  const bool heads = draws.coin();
  Mix mix;
  mix.cut = options.cutmix > 0 && (options.mixup <= 0 || heads);
  const double alpha = mix.cut ? options.cutmix : options.mixup;
  mix.share = draws.beta(alpha, alpha);
  if (mix.cut) {
    const int y = draws.below(height);
    mix.box = cutmix_box(mix.share, y, draws.below(width), height, width);
    mix.share = 1 - static_cast<double>(mix.box.height) * mix.box.width / (static_cast<double>(height) * width);
  }
  return mix;
}

void mix_images(const Mix& mix, const Tensor& images) {
  const std::int64_t count = images.dim(0), row = images.dim(2) * images.dim(3), size = images.dim(1) * row;
  // Both images of a pair change at once, so no copy is needed; in an odd batch the middle one pairs with
  // itself.
  for (std::int64_t i = 0; i < count / 2; ++i) {
    float *a = images.data<float>() + i * size, *b = images.data<float>() + (count - 1 - i) * size;
    if (!mix.cut) {
      blend_rows(a, b, size, static_cast<float>(mix.share));
      continue;
    }
    for (std::int64_t y = mix.box.top; y < mix.box.top + mix.box.height; ++y) {
      const std::int64_t begin = y * row + images.dim(3) * mix.box.left;
      std::swap_ranges(a + begin, a + begin + images.dim(3) * mix.box.width, b + begin);
    }
  }
}

Tensor reversed(const Tensor& labels) {
  const Tensor result = labels.clone();
  std::reverse(result.data<std::int64_t>(), result.data<std::int64_t>() + result.numel());
  return result;
}

}  // namespace ab
