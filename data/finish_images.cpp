// SPDX-License-Identifier: MIT
#include "data/finish_images.h"

#include "engine/backend/exec.h"

namespace ab {
namespace {

AB_HD bool contains(const Box& box, int y, int x) {
  return y >= box.top && y < box.top + box.height && x >= box.left && x < box.left + box.width;
}

/// A row of an image of the result; lanes share its values.
template <class T> struct FinishImages {
  const std::uint8_t* pixels;
  const ImageDraws* draws;
  T* out;
  std::int64_t images;
  int height, width;
  Normalisation normalisation;
  Mix mix;

  /// What an image shows there before it is mixed with another.
  AB_HD float value(std::int64_t image, int y, int x, int c) const {
    const ImageDraws& drawn = draws[image];
    if (contains(drawn.erased, y, x)) return 0;
    const int from_y = y + drawn.crop.dy - kCropPadding;
    const int from_x = (drawn.crop.flip ? width - 1 - x : x) + drawn.crop.dx - kCropPadding;
    const bool is_padding = from_y < 0 || from_y >= height || from_x < 0 || from_x >= width;
    const std::uint8_t byte = is_padding ? 0 : pixels[((image * height + from_y) * width + from_x) * 3 + c];
    return normalised(byte, normalisation.scale[c], normalisation.shift[c]);
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

}  // namespace

Tensor finish_images(const Tensor& pixels, const ImageDraws* draws, const Normalisation& normalisation,
                     const Mix& mix, DType dtype) {
  AB_CHECK(pixels.dtype() == DType::uint8 && pixels.rank() == 4 && pixels.dim(3) == 3,
           "finish_images: needs bytes [N, H, W, 3], got {} {}", name_of(pixels.dtype()), pixels.shape().str());
  const Tensor result(pixels.shape(), dtype, pixels.device());
  const std::int64_t images = pixels.dim(0), height = pixels.dim(1), width = pixels.dim(2);
  dispatch_float(dtype, "finish_images", [&]<class T>() {
    for_each_row(pixels.device(), images * height, 3 * width,
                 FinishImages<T>{pixels.data<std::uint8_t>(), draws, result.data<T>(), images,
                                 static_cast<int>(height), static_cast<int>(width), normalisation, mix});
  });
  return result;
}

}  // namespace ab
