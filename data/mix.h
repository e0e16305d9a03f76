#pragma once
// SPDX-License-Identifier: MIT
//
// Training on pairs of images. Image i of a batch of n is paired with image n-1-i.
//   mixup   x_i ← λ x_i + (1 - λ) x_{n-1-i}                       (Zhang et al., 2018)
//   CutMix  a box of x_{n-1-i}, of area 1 - λ, is pasted into x_i   (Yun et al., 2019)
// with λ from Beta(α, α), one for the whole batch. The loss takes the labels in the same shares:
// λ · loss(labels) + (1 - λ) · loss(mixed labels), where CutMix's λ is the share that was left after the box
// met the border of the image.

#include <cmath>
#include <cstdint>

#include "data/image.h"
#include "engine/core/dtype.h"
#include "engine/core/tensor.h"

namespace ab {

/// Alphas of the Beta distribution; 0 is never, and with both, either is drawn for half of all batches.
struct MixOptions {
  double mixup = 0, cutmix = 0;
  bool enabled() const { return mixup > 0 || cutmix > 0; }
};

struct Mix {
  double share = 1;  ///< of an image's own label
  bool cut = false;  ///< CutMix
  Box box;           ///< what it pastes
};

/// The mix of a batch by (seed, epoch, batch), the batch being counted over all ranks.
Mix draw_mix(const MixOptions& options, std::uint64_t seed, std::int64_t epoch, std::int64_t batch, int height,
             int width);
/// λ a + (1 - λ) b, with the same bits on every processor.
AB_HD inline float blend(float a, float b, float lambda) { return std::fma(lambda, a, (1 - lambda) * b); }
/// The box of CutMix around (y, x), √(1-λ) of the height and width, cut off at the border.
Box cutmix_box(double lambda, int y, int x, int height, int width);
/// Mixes `images`, [N, H, W, 3] float32, in place.
void mix_images(const Mix& mix, const Tensor& images);
/// Labels in the order of the images that were mixed in.
Tensor reversed(const Tensor& labels);

}  // namespace ab
