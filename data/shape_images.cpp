// SPDX-License-Identifier: MIT
#include "data/shape_images.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "data/draws.h"
#include "engine/core/check.h"

namespace ab {
namespace {

constexpr std::uint64_t kDrawStream = std::uint64_t{0x64726177} << 32;  // "draw", then split and index

using Colour = std::array<double, 3>;  // 0 … 255
using Canvas = std::array<Colour, kShapeImageSide * kShapeImageSide>;

Colour mix(const Colour& a, const Colour& b, double part_of_b) {
  Colour c;
  for (std::size_t i = 0; i < 3; ++i) c[i] = a[i] + (b[i] - a[i]) * part_of_b;
  return c;
}

double brightness(const Colour& c) { return (c[0] + c[1] + c[2]) / 3; }

Colour any_colour(Draws& draws, double low, double high) {
  Colour c;
  for (double& v : c) v = draws.uniform(low, high);
  return c;
}

Colour near_colour(Draws& draws, const Colour& c, double spread) {
  Colour result = c;
  for (double& v : result) v = std::clamp(v + draws.uniform(-spread, spread), 0.0, 255.0);
  return result;
}

/// Where a figure lies: its own coordinates (u, v), mostly within -1 … 1, are stretched to half axes in
/// pixels, turned and moved to (x, y).
struct Pose {
  double x, y, half_u, half_v, angle;
};

/// A fill that runs from one colour at u = -1 to another at u = 1.
struct Fill {
  Colour from, to;
  double opacity = 1;
};

/// Blends the points (u, v) for which `inside` holds into the canvas, with 3 · 3 samples a pixel.
template <class Inside> void paint(Canvas& canvas, const Pose& pose, const Fill& fill, const Inside& inside) {
  constexpr int kSamples = 3;
  const double cosine = std::cos(pose.angle), sine = std::sin(pose.angle);
  const double reach = std::numbers::sqrt2 * std::max(pose.half_u, pose.half_v) + 1;
  const auto clamp_to_side = [](double v) { return static_cast<int>(std::clamp(v, 0.0, double{kShapeImageSide})); };
  const int x_begin = clamp_to_side(pose.x - reach), x_end = clamp_to_side(pose.x + reach + 1);
  const int y_begin = clamp_to_side(pose.y - reach), y_end = clamp_to_side(pose.y + reach + 1);
  for (int y = y_begin; y < y_end; ++y)
    for (int x = x_begin; x < x_end; ++x) {
      int hits = 0;
      double u_sum = 0;
      for (int s = 0; s < kSamples * kSamples; ++s) {
        const double dx = x + (s % kSamples + 0.5) / kSamples - pose.x;
        const double dy = y + (s / kSamples + 0.5) / kSamples - pose.y;
        const double u = (cosine * dx + sine * dy) / pose.half_u, v = (cosine * dy - sine * dx) / pose.half_v;
        if (inside(u, v)) ++hits, u_sum += u;
      }
      if (hits == 0) continue;
      const double along = std::clamp(0.5 + 0.5 * u_sum / hits, 0.0, 1.0);
      Colour& pixel = canvas[static_cast<std::size_t>(y * kShapeImageSide + x)];
      pixel = mix(pixel, mix(fill.from, fill.to, along), fill.opacity * hits / (kSamples * kSamples));
    }
}

bool in_disc(double u, double v) { return u * u + v * v < 1; }
bool in_square(double u, double v) { return std::abs(u) < 0.85 && std::abs(v) < 0.85; }

bool in_triangle(double u, double v) {
  constexpr double kHalfRoot3 = std::numbers::sqrt3 / 2;
  return v < 0.5 && kHalfRoot3 * u - 0.5 * v < 0.5 && -kHalfRoot3 * u - 0.5 * v < 0.5;
}

/// Five points on the unit circle, joined by way of five points at `inner`.
bool in_star(double u, double v, double inner) {
  constexpr double kSector = std::numbers::pi / 5;
  const double radius2 = u * u + v * v;
  if (radius2 >= 1) return false;
  if (radius2 < inner * inner * 0.65) return true;  // within the inner pentagon: (cos 36°)² = 0.654…
  // 0 at a tip, kSector halfway to the next.
  const double angle = std::abs(std::remainder(std::atan2(v, u), 2 * kSector));
  const double px = std::sqrt(radius2) * std::cos(angle), py = std::sqrt(radius2) * std::sin(angle);
  const double ix = inner * std::cos(kSector), iy = inner * std::sin(kSector);
  return (ix - 1) * py - iy * (px - 1) > 0;  // on the centre's side of the edge from the tip (1, 0)
}

/// Paints the figure of one class, in one of its proportions.
void paint_shape(Canvas& canvas, int label, const Pose& pose, const Fill& fill, Draws& draws) {
  const double t = draws.uniform(0, 1);
  const auto draw = [&](const auto& inside) { paint(canvas, pose, fill, inside); };
  switch (label) {
    case 0: return draw(in_disc);
    case 1:
      return draw(
          [hole = 1 / (0.35 + 0.4 * t)](double u, double v) { return in_disc(u, v) && !in_disc(u * hole, v * hole); });
    case 2: return draw(in_square);
    case 3:
      return draw([hole = 1 / (0.35 + 0.35 * t)](double u, double v) {
        return in_square(u, v) && !in_square(u * hole, v * hole);
      });
    case 4: return draw(in_triangle);
    case 5:
      return draw([width = 0.2 + 0.2 * t](double u, double v) {
        return std::max(std::abs(u), std::abs(v)) < 0.95 && std::min(std::abs(u), std::abs(v)) < width;
      });
    case 6: return draw([inner = 0.36 + 0.2 * t](double u, double v) { return in_star(u, v, inner); });
    case 7:
      return draw([period = t < 0.5 ? 0.68 : 0.486](double u, double v) {  // 3 or 4 bars, first to last
        return in_square(u, v) && std::fmod(v + 0.85, period) < 0.5 * period;
      });
    case 8:
      return draw([cell = t < 0.5 ? 0.567 : 0.425](double u, double v) {  // 3 · 3 or 4 · 4 fields
        return in_square(u, v) && (static_cast<int>((u + 0.85) / cell) + static_cast<int>((v + 0.85) / cell)) % 2 == 0;
      });
    case 9:
      return draw([offset = 0.4 + 0.3 * t](double u, double v) {
        return in_disc(u, v) && !in_disc((u - offset) * 1.15, v * 1.15);
      });
    default: AB_ASSERT(label < static_cast<int>(kShapeNames.size()));
  }
}

/// A small disc, box or rod in any colour, to be seen past.
void paint_clutter(Canvas& canvas, Draws& draws) {
  Pose pose{draws.uniform(0, kShapeImageSide), draws.uniform(0, kShapeImageSide), draws.uniform(1, 4), 0,
            draws.uniform(0, 2 * std::numbers::pi)};
  const int kind = draws.below(3);
  pose.half_v = kind == 2 ? draws.uniform(0.4, 0.8) : pose.half_u * draws.uniform(0.6, 1);
  if (kind == 2) pose.half_u *= 2.5;
  const Colour colour = any_colour(draws, 20, 235);
  const Fill fill{colour, colour, draws.uniform(0.5, 1)};
  if (kind == 0) paint(canvas, pose, fill, in_disc);
  else paint(canvas, pose, fill, in_square);
}

/// A foreground brighter than the background by `contrast` at least. Shapes of either polarity would be
/// learned so much more slowly that a short run on a CPU showed nothing.
Fill foreground(Draws& draws, const Colour& background, double contrast) {
  Colour colour = any_colour(draws, 20, 235);
  while (brightness(colour) < brightness(background) + contrast) colour = any_colour(draws, 20, 235);
  return {colour, near_colour(draws, colour, 30), draws.uniform(0.75, 1)};
}

void add_noise_and_round(const Canvas& canvas, double sigma, Draws& draws, std::span<std::uint8_t> planes) {
  // The sum of two random bytes, centred: a triangular distribution of standard deviation 104.5.
  const double strength = sigma / 104.5;
  std::uint8_t bytes[16] = {};
  std::size_t used = sizeof bytes;
  for (std::size_t c = 0; c < 3; ++c)
    for (std::size_t i = 0; i < canvas.size(); ++i, used += 2) {
      if (used == sizeof bytes) {
        const Philox::Block block = draws.block();
        for (std::size_t b = 0; b < sizeof bytes; ++b)
          bytes[b] = static_cast<std::uint8_t>(block.v[b / 4] >> (8 * (b % 4)));
        used = 0;
      }
      const double value = canvas[i][c] + strength * (bytes[used] + bytes[used + 1] - 255);
      planes[c * canvas.size() + i] = static_cast<std::uint8_t>(std::clamp(value, 0.0, 255.0) + 0.5);
    }
}

}  // namespace

void draw_shape_image(std::uint64_t seed, Split split, std::int64_t index,
                      std::span<std::uint8_t, kShapeImageBytes> planes) {
  Draws draws(seed, kDrawStream + 2 * static_cast<std::uint64_t>(index) + (split == Split::test ? 1 : 0), 0);
  Canvas canvas{};

  const Colour background = any_colour(draws, 10, 130);
  const Fill backdrop{near_colour(draws, background, 60), near_colour(draws, background, 60)};
  const Pose everywhere{kShapeImageSide / 2.0, kShapeImageSide / 2.0, kShapeImageSide, kShapeImageSide,
                        draws.uniform(0, 2 * std::numbers::pi)};
  paint(canvas, everywhere, backdrop, [](double, double) { return true; });
  for (int n = 1 + draws.below(5); n > 0; --n) paint_clutter(canvas, draws);

  const double size = draws.uniform(6, 11), margin = 0.9 * size;
  const Pose pose{draws.uniform(margin, kShapeImageSide - margin), draws.uniform(margin, kShapeImageSide - margin),
                  size * draws.uniform(0.8, 1), size * draws.uniform(0.8, 1), draws.uniform(0, 2 * std::numbers::pi)};
  const Fill fill = foreground(draws, background, draws.uniform(30, 80));
  paint_shape(canvas, shape_label(index), pose, fill, draws);
  for (int n = draws.below(3); n > 0; --n) paint_clutter(canvas, draws);

  add_noise_and_round(canvas, draws.uniform(2, 22), draws, planes);
}

}  // namespace ab
