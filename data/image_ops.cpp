// SPDX-License-Identifier: MIT
//
// The operations of augment.h on the bytes of an image, in place, each with Pillow's rounding.
#include "data/augment.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <numeric>

namespace ab {
namespace {

using Histogram = std::array<std::int64_t, 256>;
using Table = std::array<std::uint8_t, 256>;

std::uint8_t blend(double other, std::uint8_t value, float factor) {
  const float v = static_cast<float>(other) + factor * (static_cast<float>(value) - static_cast<float>(other));
  return static_cast<std::uint8_t>(std::clamp(v, 0.0f, 255.0f));
}

/// Rec. 601, in 16-bit fixed point.
int grey(const std::uint8_t* pixel) { return (pixel[0] * 19595 + pixel[1] * 38470 + pixel[2] * 7471 + 0x8000) >> 16; }

/// table(channel) maps the bytes of each channel.
template <class F> void map_channels(Image& image, const F& table) {
  const std::array<Table, 3> tables{table(0), table(1), table(2)};
  for (std::size_t i = 0; i < image.pixels.size(); i += 3)
    for (std::size_t c = 0; c < 3; ++c) image.pixels[i + c] = tables[c][image.pixels[i + c]];
}

Table table_of(const auto& function) {
  Table table;
  for (int v = 0; v < 256; ++v) table[static_cast<std::size_t>(v)] = static_cast<std::uint8_t>(function(v));
  return table;
}

Histogram histogram(const Image& image, std::size_t channel) {
  Histogram counts{};
  for (std::size_t i = channel; i < image.pixels.size(); i += 3) ++counts[image.pixels[i]];
  return counts;
}

/// out[y, x] = in[⌊d·(x+½) + e·(y+½) + f⌋, ⌊a·(x+½) + b·(y+½) + c⌋], black outside; {a, b, c, d, e, f}.
using Affine = std::array<double, 6>;
void warp(const Affine& to_source, Image& image, Image& scratch) {
  // Source coordinates in 16-bit fixed point, stepped from pixel to pixel.
  const auto fixed = [](double v) { return static_cast<std::int64_t>(std::floor(v * 65536 + 0.5)); };
  const auto [a, b, c, d, e, f] = to_source;
  const std::int64_t step_x[2] = {fixed(a), fixed(d)}, step_y[2] = {fixed(b), fixed(e)};
  std::int64_t start[2] = {fixed(c + a * 0.5 + b * 0.5), fixed(f + d * 0.5 + e * 0.5)};
  scratch.resize(image.height, image.width);
  for (int y = 0; y < image.height; ++y, start[0] += step_y[0], start[1] += step_y[1]) {
    std::uint8_t* out = scratch.row(y);
    std::int64_t at[2] = {start[0], start[1]};
    for (int x = 0; x < image.width; ++x, out += 3, at[0] += step_x[0], at[1] += step_x[1]) {
      const std::int64_t from_x = at[0] >> 16, from_y = at[1] >> 16;
      const bool inside = from_x >= 0 && from_x < image.width && from_y >= 0 && from_y < image.height;
      if (inside) std::memcpy(out, image.row(static_cast<int>(from_y)) + 3 * from_x, 3);
      else std::memset(out, 0, 3);
    }
  }
  std::swap(image, scratch);
}

/// Turns counter-clockwise about the centre.
Affine rotation(double degrees, int height, int width) {
  const double angle = -degrees * std::numbers::pi / 180, cosine = std::cos(angle), sine = std::sin(angle);
  const double x = width / 2.0, y = height / 2.0;
  return {cosine, sine, x - cosine * x - sine * y, -sine, cosine, y + sine * x - cosine * y};
}

// image = other + factor · (image - other), where other is black; the pixel's grey; the mean grey of the image; the image smoothed
// by 3 · 3 weights.

void adjust_brightness(double factor, Image& image) {
  const Table table =
      table_of([&](int v) { return blend(0, static_cast<std::uint8_t>(v), static_cast<float>(factor)); });
  map_channels(image, [&](std::size_t) { return table; });
}

void adjust_color(double factor, Image& image) {
  for (std::size_t i = 0; i < image.pixels.size(); i += 3) {
    std::uint8_t* pixel = image.pixels.data() + i;
    const int other = grey(pixel);
    for (int c = 0; c < 3; ++c) pixel[c] = blend(other, pixel[c], static_cast<float>(factor));
  }
}

void adjust_contrast(double factor, Image& image) {
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < image.pixels.size(); i += 3) sum += grey(image.pixels.data() + i);
  const double mean = static_cast<double>(sum) / (static_cast<double>(image.pixels.size()) / 3);
  const double other = std::floor(mean + 0.5);
  const Table table =
      table_of([&](int v) { return blend(other, static_cast<std::uint8_t>(v), static_cast<float>(factor)); });
  map_channels(image, [&](std::size_t) { return table; });
}

void adjust_sharpness(double factor, Image& image, Image& scratch) {
  // The border has no neighbours on one side and stays as it is.
  scratch = image;
  const std::size_t row_bytes = image.view().row_bytes();
  for (int y = 1; y + 1 < image.height; ++y) {
    const std::uint8_t *above = scratch.row(y - 1), *here = scratch.row(y), *below = scratch.row(y + 1);
    std::uint8_t* out = image.row(y);
    for (std::size_t i = 3; i + 3 < row_bytes; ++i) {
      const int sum = above[i - 3] + above[i] + above[i + 3] + here[i - 3] + 5 * here[i] + here[i + 3] + below[i - 3] +
                      below[i] + below[i + 3];
      out[i] = blend((2 * sum + 13) / 26, here[i], static_cast<float>(factor));  // sum / 13, rounded
    }
  }
}

/// Keeps the upper `bits` of each byte.
void posterize(int bits, Image& image) {
  const Table table = table_of([mask = 0xFF << (8 - bits)](int v) { return v & mask; });
  map_channels(image, [&](std::size_t) { return table; });
}

/// Inverts bytes that are not below the threshold.
void solarize(double threshold, Image& image) {
  const Table table = table_of([threshold](int v) { return v < threshold ? v : 255 - v; });
  map_channels(image, [&](std::size_t) { return table; });
}

/// Stretches each channel to 0 … 255.
void auto_contrast(Image& image) {
  map_channels(image, [&](std::size_t channel) {
    const Histogram counts = histogram(image, channel);
    int low = 0, high = 255;
    while (low < 255 && !counts[static_cast<std::size_t>(low)]) ++low;
    while (high > 0 && !counts[static_cast<std::size_t>(high)]) --high;
    if (high <= low) return table_of([](int v) { return v; });
    const double scale = 255.0 / (high - low), offset = -low * scale;
    return table_of([&](int v) { return std::clamp(static_cast<int>(v * scale + offset), 0, 255); });
  });
}

/// Spreads each channel's values evenly over 0 … 255.
void equalize(Image& image) {
  map_channels(image, [&](std::size_t channel) {
    const Histogram counts = histogram(image, channel);
    const auto brightest = std::find_if(counts.rbegin(), counts.rend(), [](std::int64_t n) { return n > 0; });
    const std::int64_t step = (std::accumulate(counts.begin(), counts.end(), std::int64_t{0}) - *brightest) / 255;
    if (step == 0) return table_of([](int v) { return v; });
    std::int64_t below = step / 2;
    return table_of([&](int v) {
      const std::int64_t value = below / step;
      below += counts[static_cast<std::size_t>(v)];
      return std::min<std::int64_t>(value, 255);
    });
  });
}

/// Hue, saturation and value in bytes.
std::array<std::uint8_t, 3> to_hsv(const std::uint8_t* pixel) {
  const std::uint8_t least = std::min({pixel[0], pixel[1], pixel[2]}), most = std::max({pixel[0], pixel[1], pixel[2]});
  if (least == most) return {0, 0, most};
  const auto range = static_cast<float>(most - least);
  const auto below = [&](int c) { return static_cast<float>(most - pixel[c]) / range; };
  const float red = below(0), green = below(1), blue = below(2);
  float hue = static_cast<float>(4.0 + green - red);
  if (pixel[0] == most) hue = blue - green;
  else if (pixel[1] == most) hue = static_cast<float>(2.0 + red - blue);
  hue = static_cast<float>(std::fmod(hue / 6.0 + 1.0, 1.0));
  const float saturation = range / static_cast<float>(most);
  return {static_cast<std::uint8_t>(hue * 255.0), static_cast<std::uint8_t>(saturation * 255.0), most};
}

void from_hsv(const std::array<std::uint8_t, 3>& hsv, std::uint8_t* pixel) {
  const auto [hue, saturation, value] = hsv;
  const int sixth = hue * 6 / 255;
  const float within = static_cast<float>(hue * 6.0 / 255.0 - sixth);
  const float grey_off = static_cast<float>(saturation) / 255.0f;
  const auto dimmed = [value = value](double by) {
    return static_cast<std::uint8_t>(std::round(static_cast<float>(value * (1.0 - by))));
  };
  const std::uint8_t low = dimmed(grey_off), falling = dimmed(grey_off * within),
                     rising = dimmed(grey_off * (1.0 - within));
  const std::array<std::uint8_t, 3> colors[6] = {{value, rising, low},  {falling, value, low}, {low, value, rising},
                                                 {low, falling, value}, {rising, low, value},  {value, low, falling}};
  std::copy_n(colors[sixth % 6].begin(), 3, pixel);
}

/// Turns hues by a share of the circle.
void adjust_hue(double share, Image& image) {
  const int by = static_cast<int>(share * 255);
  for (std::size_t i = 0; i < image.pixels.size(); i += 3) {
    std::array<std::uint8_t, 3> hsv = to_hsv(image.pixels.data() + i);
    hsv[0] = static_cast<std::uint8_t>(hsv[0] + by);
    from_hsv(hsv, image.pixels.data() + i);
  }
}

}  // namespace

void apply_op(ImageOp op, double strength, Image& image, Image& scratch) {
  switch (op) {
    case ImageOp::identity: return;
    case ImageOp::shear_x: return warp({1, strength, 0, 0, 1, 0}, image, scratch);
    case ImageOp::shear_y: return warp({1, 0, 0, strength, 1, 0}, image, scratch);
    case ImageOp::translate_x: return warp({1, 0, -strength, 0, 1, 0}, image, scratch);
    case ImageOp::translate_y: return warp({1, 0, 0, 0, 1, -strength}, image, scratch);
    case ImageOp::rotate: return warp(rotation(strength, image.height, image.width), image, scratch);
    case ImageOp::brightness: return adjust_brightness(1 + strength, image);
    case ImageOp::color: return adjust_color(1 + strength, image);
    case ImageOp::contrast: return adjust_contrast(1 + strength, image);
    case ImageOp::sharpness: return adjust_sharpness(1 + strength, image, scratch);
    case ImageOp::posterize: return posterize(static_cast<int>(strength), image);
    case ImageOp::solarize: return solarize(strength, image);
    case ImageOp::auto_contrast: return auto_contrast(image);
    case ImageOp::equalize: return equalize(image);
    case ImageOp::hue: return adjust_hue(strength, image);
  }
}

}  // namespace ab
