#pragma once
// SPDX-License-Identifier: MIT
//
// Scaling as Pillow's resize(BILINEAR), which torchvision applies to images: output pixel i takes the source
// around c = (i + 1/2) · s with a triangle of half-width max(s, 1), s = source size / output size, so that
// shrinking averages and does not alias. Horizontal first, then vertical, each rounded to bytes; weights are
// integers of 22 bits. The results are Pillow's to the bit, or within 1 where Pillow 12 and later swap the
// order.

#include <vector>

#include "data/image.h"

namespace ab {

/// Scales images; keeps its buffers for the next one, so one thread at a time.
class Resizer {
 public:
  /// Scales the box `from` of `source` to height · width and keeps the window `part` of the result.
  void resize(const ImageView& source, const Box& from, int height, int width, const Box& part, Image& out);
  void resize(const ImageView& source, const Box& from, int height, int width, Image& out) {
    resize(source, from, height, width, {0, 0, height, width}, out);
  }

 private:
  /// The source pixels of one output pixel: [first, first + count), weighted by count entries of `values`.
  struct Window {
    int first, count;
    std::size_t weights;
  };
  struct Axis {
    std::vector<Window> windows;
    std::vector<std::int32_t> values;
  };
  static void plan(int source_size, int full_size, int first, int count, Axis& axis);
  void scale_rows(const ImageView& source, const Box& from, int first_row, int rows);
  void scale_columns(int first_row, Image& out) const;

  Axis across_, down_;
  Image scaled_rows_;
};

}  // namespace ab
