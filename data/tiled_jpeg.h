#pragma once
// SPDX-License-Identifier: MIT
//
// JPEGs whose rows of blocks are cut into segments by restart markers (ITU T.81, B.2.1 and F.1.1.5): each segment decodes by
// itself, so the part of such an image that is wanted is a smaller JPEG, made by copying bytes.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "data/image.h"

namespace ab {

/// A baseline JPEG of one scan in segments that do not span rows of blocks; others are none. It refers to the bytes.
class TiledJpeg {
 public:
  /// Nothing for any other file, and for one that is damaged between its segments.
  static std::optional<TiledJpeg> find(std::span<const std::uint8_t> file);

  int height() const { return height_; }
  int width() const { return width_; }

  /// A smaller JPEG around `box`, and where in it the box lies.
  struct Cut {
    std::vector<std::uint8_t> file;
    Box box;
  };
  /// With at least `reach` pixels on each side of the box, where the image has them.
  Cut cut(const Box& box, int reach) const;

 private:
  std::span<const std::uint8_t> file_;
  std::size_t size_at_ = 0;  ///< of the height in the file, two bytes, before the width
  std::size_t data_at_ = 0;  ///< of the first segment
  int height_ = 0, width_ = 0;
  int segment_height_ = 0, segment_width_ = 0;  ///< pixels
  int across_ = 0;                              ///< segments in a row of blocks
  std::vector<std::size_t> ends_;               ///< of the segments, without their markers
};

/// The same coefficients as a baseline JPEG in segments of 3 to 8 blocks of chroma, or of a row where no such number divides it, with
/// Huffman tables made for it, of a file that decodes. Nothing where it is no JPEG of eight bits. Comments, EXIF data and colour
/// profiles are left out.
std::optional<std::vector<std::uint8_t>> tile_jpeg(std::span<const std::uint8_t> file);

}  // namespace ab
