#pragma once
// SPDX-License-Identifier: MIT
//
// The end of augmentation where training computes: images come as bytes, a quarter of what float32 would be, together
// with what was drawn for them. One kernel does the rest,
//
//   crop and flip (crop.h) → normalise (dataset.h) → erase (augment.h) → mix (mix.h),
//
// and rounds to the type of activations. In float32 the result has the bits of ImageTransform::prepare() and
// mix_images().

#include "data/dataset.h"
#include "data/mix.h"
#include "data/transform.h"
#include "engine/core/tensor.h"

namespace ab {

/// `pixels`: [N, H, W, 3] uint8; `draws`: one for each image, on the same device. The result: [N, H, W, 3] of `dtype`.
Tensor finish_images(const Tensor& pixels, const ImageDraws* draws, const Normalisation& normalisation, const Mix& mix,
                     DType dtype);

namespace kernels {

AB_HD inline bool contains(const Box& box, int y, int x) {
  return y >= box.top && y < box.top + box.height && x >= box.left && x < box.left + box.width;
}

/// A row of an image of the result; the lanes share its values.
template <class T> struct FinishImages {
  const std::uint8_t* pixels;
  const ImageDraws* draws;
  T* out;
  std::int64_t images;
  int height, width;
  Normalisation normalisation;
  Mix mix;

  /// The value of an image there before it is mixed with another.
  AB_HD float value(std::int64_t image, int y, int x, int c) const {
    const ImageDraws& drawn = draws[image];
    if (contains(drawn.erased, y, x)) return 0;
    int from_y = y + drawn.shift.dy, from_x = (drawn.shift.flip ? width - 1 - x : x) + drawn.shift.dx;
    if (drawn.shift.reflects) from_y = reflected(from_y, height), from_x = reflected(from_x, width);
    const bool is_padding = from_y < 0 || from_y >= height || from_x < 0 || from_x >= width;
    const std::uint8_t byte = is_padding ? 0 : pixels[((image * height + from_y) * width + from_x) * 3 + c];
    // A GPU can index what it holds in registers only by constants.
    const auto of_channel = [c](const auto& of) { return c == 0 ? of[0] : c == 1 ? of[1] : of[2]; };
    return normalised(byte, of_channel(normalisation.scale), of_channel(normalisation.shift));
  }

  template <class Team> AB_HD void operator()(const Team& team, std::int64_t row) const {
    const std::int64_t image = row / height, other = images - 1 - image;
    const int y = static_cast<int>(row - image * height), row_size = 3 * width;
    const bool blended = !mix.cut && mix.share < 1 && image != other;
    for (int i = team.lane(); i < row_size; i += team.size()) {
      const int x = i / 3, c = i % 3;
      const bool pasted = mix.cut && contains(mix.box, y, x);
      float v = value(pasted ? other : image, y, x, c);
      if (blended) v = blend(v, value(other, y, x, c), static_cast<float>(mix.share));
      out[row * row_size + i] = static_cast<T>(v);
    }
  }
};

}  // namespace kernels
}  // namespace ab
