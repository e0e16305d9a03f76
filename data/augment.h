#pragma once
// SPDX-License-Identifier: MIT
//
// The usual CIFAR augmentation, in torchvision's order: RandomCrop(size, padding=4), whose border is black
// because it is padded before normalising; RandomHorizontalFlip(); ToTensor(); Normalize(mean, stddev).
//
//   out[y, x, c] = (padded[y + dy, x' + dx, c] / 255 - mean[c]) / stddev[c],   x' = flip ? width-1-x : x

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace ab {

inline constexpr int kCropPadding = 4;

/// What is done to one image. Crop offsets count within the padded image: 0 … 2 · kCropPadding, and the
/// default leaves the image where it is.
struct Augmentation {
  int dy = kCropPadding, dx = kCropPadding;
  bool flip = false;
  bool operator==(const Augmentation&) const = default;
};

/// The augmentation of a sample in an epoch: all offsets equally likely, every other image flipped.
Augmentation draw_augmentation(std::uint64_t seed, std::int64_t epoch, std::int64_t sample);

/// Turns one RGB image of bytes [height, width, 3] into normalised floats of the same layout.
class ImagePreparer {
 public:
  ImagePreparer(int height, int width, const std::array<float, 3>& mean, const std::array<float, 3>& stddev);
  /// Not safe to call from two threads at once: rows pass through a buffer of this object.
  void prepare(std::span<const std::uint8_t> image, const Augmentation& augmentation, float* out);

 private:
  /// Row y after cropping and flipping, in the image itself or in row_.
  const std::uint8_t* cropped_row(std::span<const std::uint8_t> image, const Augmentation& augmentation,
                                  int y);

  int height_, width_;
  std::vector<float> scale_, shift_;  ///< of one row, channel by channel: float = byte · scale + shift
  std::vector<std::uint8_t> row_;
};

}  // namespace ab
