// SPDX-License-Identifier: MIT
#include "data/finish_images.h"

#include "engine/device/exec.h"

namespace ab {

Tensor finish_images(const Tensor& pixels, const ImageDraws* draws, const Normalisation& normalisation, const Mix& mix,
                     DType dtype) {
  AB_CHECK(pixels.dtype() == DType::uint8 && pixels.rank() == 4 && pixels.dim(3) == 3,
           "finish_images: needs bytes [N, H, W, 3], got {} {}", name_of(pixels.dtype()), pixels.shape().str());
  const std::int64_t images = pixels.dim(0), height = pixels.dim(1), width = pixels.dim(2);
  const Tensor result(pixels.shape(), dtype, pixels.device());
  dispatch_float(dtype, "finish_images", [&]<class T>() {
    for_each_row(pixels.device(), images * height, 3 * width,
                 kernels::FinishImages<T>{pixels.data<std::uint8_t>(), draws, result.data<T>(), images,
                                          static_cast<int>(height), static_cast<int>(width), normalisation, mix});
  });
  return result;
}

}  // namespace ab
