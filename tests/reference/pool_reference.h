#pragma once
// SPDX-License-Identifier: MIT
//
// Pooling by definition, in double: slow and obviously right, for tests.

#include <cmath>
#include <limits>
#include <vector>

#include "engine/core/tensor.h"

namespace ab::reference {

using Values = std::vector<double>;

/// Largest value of each kernel × kernel window; padding never wins.   x: [N, H, W, C]
inline Values max_pool2d(const Shape& shape, const Values& x, std::int64_t kernel, std::int64_t stride,
                         std::int64_t padding) {
  const std::int64_t height = shape[1], width = shape[2], channels = shape[3];
  Values y;
  for (std::int64_t n = 0; n < shape[0]; ++n)
    for (std::int64_t top = -padding; top + kernel <= height + padding; top += stride)
      for (std::int64_t left = -padding; left + kernel <= width + padding; left += stride)
        for (std::int64_t c = 0; c < channels; ++c) {
          double best = -std::numeric_limits<double>::infinity();
          for (std::int64_t iy = top; iy < top + kernel; ++iy)
            for (std::int64_t ix = left; ix < left + kernel; ++ix)
              if (0 <= iy && iy < height && 0 <= ix && ix < width)
                best = std::fmax(best, x[((n * height + iy) * width + ix) * channels + c]);
          y.push_back(best);
        }
  return y;
}

/// Mean of each window, padded zeros included.
inline Values avg_pool2d(const Shape& shape, const Values& x, std::int64_t kernel, std::int64_t stride,
                         std::int64_t padding) {
  const std::int64_t height = shape[1], width = shape[2], channels = shape[3];
  Values y;
  for (std::int64_t n = 0; n < shape[0]; ++n)
    for (std::int64_t top = -padding; top + kernel <= height + padding; top += stride)
      for (std::int64_t left = -padding; left + kernel <= width + padding; left += stride)
        for (std::int64_t c = 0; c < channels; ++c) {
          double sum = 0;
          for (std::int64_t iy = top; iy < top + kernel; ++iy)
            for (std::int64_t ix = left; ix < left + kernel; ++ix)
              if (0 <= iy && iy < height && 0 <= ix && ix < width)
                sum += x[((n * height + iy) * width + ix) * channels + c];
          y.push_back(sum / static_cast<double>(kernel * kernel));
        }
  return y;
}

/// Mean over rows floor(o·H/out_h) to ceil((o+1)·H/out_h) and the same range of columns.
inline Values adaptive_avg_pool2d(const Shape& shape, const Values& x, std::int64_t out_h, std::int64_t out_w) {
  const std::int64_t height = shape[1], width = shape[2], channels = shape[3];
  const auto begin = [](std::int64_t o, std::int64_t in, std::int64_t out) {
    return static_cast<std::int64_t>(std::floor(static_cast<double>(o * in) / static_cast<double>(out)));
  };
  const auto end = [](std::int64_t o, std::int64_t in, std::int64_t out) {
    return static_cast<std::int64_t>(std::ceil(static_cast<double>((o + 1) * in) / static_cast<double>(out)));
  };
  Values y;
  for (std::int64_t n = 0; n < shape[0]; ++n)
    for (std::int64_t oy = 0; oy < out_h; ++oy)
      for (std::int64_t ox = 0; ox < out_w; ++ox)
        for (std::int64_t c = 0; c < channels; ++c) {
          double sum = 0;
          std::int64_t count = 0;
          for (std::int64_t iy = begin(oy, height, out_h); iy < end(oy, height, out_h); ++iy)
            for (std::int64_t ix = begin(ox, width, out_w); ix < end(ox, width, out_w); ++ix, ++count)
              sum += x[((n * height + iy) * width + ix) * channels + c];
          y.push_back(sum / static_cast<double>(count));
        }
  return y;
}

}  // namespace ab::reference
