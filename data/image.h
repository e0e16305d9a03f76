#pragma once
// SPDX-License-Identifier: MIT
//
// One picture as bytes: RGB, row after row, [height, width, 3].

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace ab {

/// A rectangle of pixels of an image.
struct Box {
  int top = 0, left = 0, height = 0, width = 0;
  bool operator==(const Box&) const = default;
};

/// An image that belongs to someone else, or a part of one, whose rows lie further apart than they are long.
struct ImageView {
  const std::uint8_t* pixels = nullptr;
  int height = 0, width = 0;
  int width_of_whole = width;

  std::size_t row_bytes() const { return 3 * static_cast<std::size_t>(width); }
  std::size_t bytes() const { return static_cast<std::size_t>(height) * row_bytes(); }
  const std::uint8_t* row(int y) const { return pixels + 3 * static_cast<std::ptrdiff_t>(y) * width_of_whole; }
  const std::uint8_t* end() const { return row(height - 1) + row_bytes(); }
  ImageView part(const Box& box) const { return {row(box.top) + 3 * box.left, box.height, box.width, width_of_whole}; }
};

/// A part of an image, as all its pixels, or where a decoder has them for less as one for each `shrink` · `shrink` of them.
struct WantedPart {
  Box box;
  int shrink;  ///< 1, 2, 4 or 8, and no more than the box has rows and columns
  WantedPart(const Box& all, int each = 1) : box(all), shrink(each) {}
};

/// Of an image of that size the part that is wanted, within it. Empty: all of it.
using ChoosePart = std::function<WantedPart(int height, int width)>;

/// An image with its memory, which resize() keeps for the next image.
struct Image {
  int height = 0, width = 0;
  std::vector<std::uint8_t> pixels;

  /// The contents are undefined afterwards.
  void resize(int new_height, int new_width) {
    height = new_height;
    width = new_width;
    pixels.resize(view().bytes());
  }
  ImageView view() const { return {pixels.data(), height, width}; }
  std::uint8_t* row(int y) { return pixels.data() + static_cast<std::size_t>(y) * view().row_bytes(); }
};

/// The pixels of a part as an image of their own.
inline void cut_out(const ImageView& part, Image& out) {
  out.resize(part.height, part.width);
  for (int y = 0; y < part.height; ++y) std::copy_n(part.row(y), part.row_bytes(), out.row(y));
}

}  // namespace ab
