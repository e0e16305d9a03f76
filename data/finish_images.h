#pragma once
// SPDX-License-Identifier: MIT
//
// The end of augmentation where training computes: images come as bytes, a quarter of what float32 would be, together
// with what was drawn for them. One kernel does the rest,
//
//   crop and flip (crop.h) → normalise (normalisation.h) → erase (random_erasing.h) → mix (mix.h),
//
// and rounds to the type of activations. In float32 the result has the bits of ImageTransform::prepare() and
// mix_images().

#include "data/crop.h"
#include "data/image.h"
#include "data/mix.h"
#include "data/normalisation.h"
#include "engine/core/tensor.h"

namespace ab {

/// What is still to be done to the bytes of one image; by default nothing.
struct ImageDraws {
  PaddedCrop crop;
  Box erased;
};

/// `pixels`: [N, H, W, 3] uint8; `draws`: one for each image, on the same device. The result: [N, H, W, 3] of `dtype`.
Tensor finish_images(const Tensor& pixels, const ImageDraws* draws, const Normalisation& normalisation,
                     const Mix& mix, DType dtype);

}  // namespace ab
