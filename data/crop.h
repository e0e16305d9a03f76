#pragma once
// SPDX-License-Identifier: MIT
//
// The part of an image that a model sees, and its scaling, in torchvision's terms:
//   padded    RandomCrop(size, padding=4) with a black border, RandomHorizontalFlip()
//   resized   RandomResizedCrop(size, scale=(min_area, 1), ratio=(3/4, 4/3)), RandomHorizontalFlip()
//   shifted   by a few pixels with reflected borders, mirrored in every second epoch (Jordan 2024, arXiv 2404.00498)
//   centre    Resize(shorter), CenterCrop(size): validation of what is trained on resized crops
// Draws are pure functions of a SampleKey.

#include <cstdint>
#include <vector>

#include "data/draws.h"
#include "data/image.h"
#include "engine/core/dtype.h"

namespace ab {

// Scaling as Pillow's resize(), which torchvision applies to images: output pixel i takes the source around
// c = (i + 1/2) · s, s = source size / output size, with a triangle of half-width max(s, 1), or with Keys's cubic (a = -1/2)
// of twice that, so that shrinking averages and does not alias. Horizontal first, then vertical, each rounded to bytes;
// weights are integers of 22 bits. The results are Pillow's to the bit; where Pillow 12 and later swap the order, within 1, or
// more beside hard edges, where a cubic is clipped in between.
enum class Interpolation : std::uint8_t { bilinear, bicubic };

/// Scales images; keeps its buffers for the next one, so one thread at a time.
class Resizer {
 public:
  explicit Resizer(Interpolation interpolation = Interpolation::bilinear) : interpolation_(interpolation) {}

  /// Scales the box `from` of `source` to height · width and keeps the window `part` of the result, perhaps mirrored.
  void resize(const ImageView& source, const Box& from, int height, int width, const Box& part, Image& out,
              bool mirrored = false);
  void resize(const ImageView& source, const Box& from, int height, int width, Image& out) {
    resize(source, from, height, width, {0, 0, height, width}, out);
  }

 private:
  /// The source pixels of one output pixel: [first, first + count), weighted by pairs of weights from `pairs` on, of which the last
  /// may have a zero.
  struct Window {
    int first, count;
    std::size_t pairs;
  };
  /// Two weights, in the two halves of each number: the upper bits of both, and the lower twelve.
  struct PairOfWeights {
    std::int32_t upper, lower;
  };
  struct Axis {
    std::vector<Window> windows;
    std::vector<PairOfWeights> weights;
  };
  void plan(int source_size, int full_size, int first, int count, Axis& axis) const;
  void scale_rows(const ImageView& source, const Box& from, int first_row, int rows);
  void scale_columns(int first_row, Image& out) const;

  Interpolation interpolation_;
  Axis across_, down_;
  std::vector<std::uint8_t> scaled_rows_;  // each with room for a whole vector at its end
};

/// out[y, x] = image[y + dy, x' + dx],   x' = flip ? width-1-x : x;   out is as large as the image.
struct Shift {
  int dy = 0, dx = 0;
  bool flip = false;
  bool reflects =
      false;  ///< beyond its border the image goes on as its reflection, which does not repeat the border; or is black
  bool operator==(const Shift&) const = default;
};

/// The window of an image with four black pixels around it: all equally likely, every other image flipped.
Shift draw_padded_crop(const SampleKey& key);
/// By up to `pixels` in both directions with reflected borders. An image is flipped in even epochs or in odd ones, as
/// (seed, sample) says, so that two epochs show both.
Shift draw_shift(const SampleKey& key, int pixels);
void shift(const ImageView& image, const Shift& by, Image& out);

/// Where pixel `i` of a row or column of `size` with reflected borders comes from; at most size - 1 beyond one.
AB_HD inline int reflected(int i, int size) { return i < 0 ? -i : i < size ? i : 2 * (size - 1) - i; }

struct ResizedCrop {
  Box box;
  bool flip = false;
  bool operator==(const ResizedCrop&) const = default;
};

inline constexpr double kMinArea = 0.08;  ///< of a crop, as share of its image: Szegedy et al. 2015, arXiv 1409.4842

/// A box of `min_area` to all of the area and of width : height between 3 : 4 and 4 : 3 (uniform in its
/// logarithm); the largest such box in the centre when ten attempts did not fit into the image.
ResizedCrop draw_resized_crop(const SampleKey& key, int height, int width, double min_area = kMinArea);
/// The box, scaled to height · width, mirrored where that was drawn.
void resized_crop(const ImageView& image, const ResizedCrop& crop, int height, int width, Resizer& resizer, Image& out);

/// The centre of the image, scaled so that its shorter side is `shorter`; 0: 256/224 of that of the result.
void centre_crop(const ImageView& image, int height, int width, Resizer& resizer, Image& out, int shorter = 0);

}  // namespace ab
