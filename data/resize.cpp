// SPDX-License-Identifier: MIT
#include "data/resize.h"

#include <algorithm>
#include <cmath>

#include "engine/core/check.h"

namespace ab {
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
