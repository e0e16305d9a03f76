// SPDX-License-Identifier: MIT
#include "data/finish_images.h"

#include "engine/backend/exec.h"

namespace ab {
namespace {

AB_HD bool contains(const Box& box, int y, int x) {
  return y >= box.top && y < box.top + box.height && x >= box.left && x < box.left + box.width;
}

/// One pixel of the result, all channels.
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

  AB_HD void operator()(std::int64_t pixel) const {
    const int x = static_cast<int>(pixel % width), y = static_cast<int>(pixel / width % height);
    const std::int64_t image = pixel / width / height, other = images - 1 - image;
    const bool pasted = mix.cut && contains(mix.box, y, x), blended = !mix.cut && mix.share < 1 && image != other;
    for (int c = 0; c < 3; ++c) {
      float v = value(pasted ? other : image, y, x, c);
      if (blended) v = blend(v, value(other, y, x, c), static_cast<float>(mix.share));
      out[3 * pixel + c] = static_cast<T>(v);
    }
  }
};

}  // namespace

Tensor finish_images(const Tensor& pixels, const ImageDraws* draws, const Normalisation& normalisation,
                     const Mix& mix, DType dtype) {
  AB_CHECK(pixels.dtype() == DType::uint8 && pixels.rank() == 4 && pixels.dim(3) == 3,
           "finish_images: needs bytes [N, H, W, 3], got {} {}", name_of(pixels.dtype()), pixels.shape().str());
  const Tensor result(pixels.shape(), dtype, pixels.device());
  dispatch_float(dtype, "finish_images", [&]<class T>() {
    for_each_index(pixels.device(), pixels.numel() / 3,
                   FinishImages<T>{pixels.data<std::uint8_t>(), draws, result.data<T>(), pixels.dim(0),
                                   static_cast<int>(pixels.dim(1)), static_cast<int>(pixels.dim(2)), normalisation,
                                   mix});
  });
  return result;
}

}  // namespace ab
