#pragma once
// SPDX-License-Identifier: MIT
//
// From stored bytes to what the model sees, in torchvision's order: crop and flip, colour jitter, RandAugment or TrivialAugment, scaling to
// floats, normalising, random erasing. prepare() does all of it on the host; stage() leaves to a
// device what that does as well (finish_images.h).

#include <array>
#include <cstdint>
#include <vector>

#include "data/crop.h"
#include "data/dataset.h"

namespace ab {

/// The augmentation of training images; evaluation only scales, cuts the centre (Cropping::resized) and
/// normalises.
struct Augmentation {
  bool crop_and_flip = true;  ///< the random crop that belongs to the data set, and a random flip
  int shift = 0;              ///< instead of both: most pixels of draw_shift(); 0: not
  int rand_augment = 0;       ///< operations per image; 0: none
  int rand_augment_magnitude = 9;
  bool trivial_augment = false;
  std::array<double, 4> color_jitter{};  ///< most of draw_color_jitter(); zeros: none
  double random_erasing = 0;             ///< probability per image

  /// Whether something changes the bytes between the crop and normalising.
  bool changes_colors() const { return rand_augment > 0 || trivial_augment || color_jitter != std::array<double, 4>{}; }
};

/// How a JPEG is decoded to train on: to all its pixels; or where the part that is seen has at least 2, 4 or 8 times the height and width
/// that it is scaled to, to one for each 2 · 2, 4 · 4 or 8 · 8 of them. Images that an ImageCache keeps in memory are exact.
enum class Decode : std::uint8_t { exact, fast };

/// How images of any size come to that which the model sees, in training and in evaluation (Cropping::resized).
struct Framing {
  Interpolation interpolation = Interpolation::bilinear;
  double min_area = kMinArea;  ///< of draw_resized_crop()
  Decode decode = Decode::exact;
  int shorter = 0;  ///< of centre_crop()
};

/// The steps that are still to be done to the bytes of an image before and after normalising; by default none.
struct ImageDraws {
  Shift shift;
  Box erased;
};

/// Prepares images one by one; holds buffers, so one thread at a time.
class ImageTransform {
 public:
  /// Results are of height · width; mean, stddev and the way of cropping are those of `set`.
  ImageTransform(const Dataset& set, int height, int width, const Framing& framing = {});

  /// The part of an image that a step of training sees, where that is less than all of it.
  ChoosePart part_seen(const Augmentation& augmentation, const SampleKey& key) const;

  /// Evaluation: without anything random, moved by `view`. `out`: [height, width, 3].
  void prepare(const ImageView& image, float* out, const Shift& view = {});
  /// Training: a pure function of image, augmentation and key. Of an image of which a part is seen, `image` is that part.
  void prepare(const ImageView& image, const Augmentation& augmentation, const SampleKey& key, float* out);

  /// The same up to normalising, which is left to a device: bytes, and in training what was drawn for the rest.
  void stage(const ImageView& image, std::uint8_t* out, const Shift& view = {});
  ImageDraws stage(const ImageView& image, const Augmentation& augmentation, const SampleKey& key, std::uint8_t* out);

 private:
  bool as_stored(const ImageView& image) const { return image.height == height_ && image.width == width_; }
  void frame(const ImageView& image, const Shift& moved_by);
  void frame_randomly(const ImageView& image, const Augmentation& augmentation, const SampleKey& key);
  void frame_augmented(const ImageView& image, const Augmentation& augmentation, const SampleKey& key);
  void resize_to_frame(const ImageView& image);
  Box draw_erased(const Augmentation& augmentation, const SampleKey& key) const;
  void normalise(float* out) const;

  Cropping cropping_;
  int height_, width_;
  Framing framing_;
  std::vector<float> scale_, shift_;  ///< of one row, channel by channel: float = byte · scale + shift
  Resizer resizer_;
  Image frame_, scratch_;
};

}  // namespace ab
