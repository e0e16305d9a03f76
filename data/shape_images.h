#pragma once
// SPDX-License-Identifier: MIT
//
// Pictures of ten kinds of shapes, drawn by arithmetic: 32 · 32 RGB, one shape each, varied in place, size,
// rotation, proportions and colour, on a gradient with clutter and noise. A picture is a pure function of
// (seed, split, index), computed in double precision so that machines and compilers agree on its bytes.

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace ab {

inline constexpr int kShapeImageSide = 32;
inline constexpr std::size_t kShapeImageBytes = 3 * kShapeImageSide * kShapeImageSide;
inline constexpr std::array<std::string_view, 10> kShapeNames{"disc",  "ring", "square",  "frame",   "triangle",
                                                              "cross", "star", "stripes", "checker", "crescent"};

enum class Split : std::uint8_t { train, test };

/// The class of picture `index` in either split, as an index into kShapeNames: all classes in turn.
constexpr int shape_label(std::int64_t index) {
  return static_cast<int>(index % static_cast<std::int64_t>(kShapeNames.size()));
}

/// Draws picture `index` of a split as a red, a green and a blue plane of [32, 32] bytes.
void draw_shape_image(std::uint64_t seed, Split split, std::int64_t index,
                      std::span<std::uint8_t, kShapeImageBytes> planes);

}  // namespace ab
