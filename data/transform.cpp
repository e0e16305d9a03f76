// SPDX-License-Identifier: MIT
#include "data/transform.h"

#include <algorithm>

#include "data/augment.h"
#include "data/crop.h"
#include "data/dataset.h"

namespace ab {

ImageTransform::ImageTransform(const Dataset& set, int height, int width, const Framing& framing)
    : cropping_(set.cropping), height_(height), width_(width), framing_(framing), resizer_(framing.interpolation) {
  const Normalisation normalisation = normalisation_of(set);
  for (int x = 0; x < width; ++x)
    for (std::size_t c = 0; c < 3; ++c) {
      scale_.push_back(normalisation.scale[c]);
      shift_.push_back(normalisation.shift[c]);
    }
}

void ImageTransform::resize_to_frame(const ImageView& image) {
  if (as_stored(image)) frame_.pixels.assign(image.pixels, image.pixels + image.bytes());
  else resizer_.resize(image, {0, 0, image.height, image.width}, height_, width_, frame_);
  frame_.height = height_;
  frame_.width = width_;
}

void ImageTransform::frame(const ImageView& image, const Shift& moved_by) {
  if (cropping_ == Cropping::resized) centre_crop(image, height_, width_, resizer_, frame_, framing_.shorter);
  else resize_to_frame(image);
  if (moved_by == Shift{}) return;
  std::swap(frame_, scratch_);
  shift(scratch_.view(), moved_by, frame_);
}

ChoosePart ImageTransform::part_seen(const Augmentation& augmentation, const SampleKey& key) const {
  if (cropping_ != Cropping::resized || !augmentation.crop_and_flip || augmentation.shift > 0) return {};
  return [key, framing = framing_, to_height = height_, to_width = width_](int height, int width) {
    WantedPart part = draw_resized_crop(key, height, width, framing.min_area).box;
    const auto has_twice = [&](int size, int to) { return size >= 2 * part.shrink * to; };
    if (framing.decode == Decode::fast)
      while (part.shrink < 8 && has_twice(part.box.height, to_height) && has_twice(part.box.width, to_width))
        part.shrink *= 2;
    return part;
  };
}

void ImageTransform::frame_randomly(const ImageView& image, const Augmentation& augmentation, const SampleKey& key) {
  if (augmentation.shift > 0) return frame(image, draw_shift(key, augmentation.shift));
  if (cropping_ == Cropping::resized) {
    // The image is the box; whether it is mirrored has nothing to do with its size.
    const bool flip = draw_resized_crop(key, image.height, image.width).flip;
    resized_crop(image, {{0, 0, image.height, image.width}, flip}, height_, width_, resizer_, frame_);
    return;
  }
  shift(image, draw_padded_crop(key), as_stored(image) ? frame_ : scratch_);
  if (!as_stored(image)) resize_to_frame(scratch_.view());
}

void ImageTransform::normalise(float* out) const {
  const std::size_t row_size = scale_.size();
  const float *scale = scale_.data(), *shift = shift_.data();
  for (int y = 0; y < height_; ++y, out += row_size) {
    const std::uint8_t* row = frame_.view().row(y);
#pragma omp simd
    for (std::size_t i = 0; i < row_size; ++i) out[i] = normalised(row[i], scale[i], shift[i]);
  }
}

void ImageTransform::frame_augmented(const ImageView& image, const Augmentation& augmentation, const SampleKey& key) {
  if (augmentation.crop_and_flip) frame_randomly(image, augmentation, key);
  else frame(image, {});
  if (augmentation.color_jitter != std::array<double, 4>{})
    for (const auto& [op, strength] : draw_color_jitter(key, augmentation.color_jitter))
      if (strength != 0) apply_op(op, strength, frame_, scratch_);
  if (augmentation.trivial_augment) trivial_augment(key, frame_, scratch_);
  rand_augment(key, augmentation.rand_augment, augmentation.rand_augment_magnitude, frame_, scratch_);
}

Box ImageTransform::draw_erased(const Augmentation& augmentation, const SampleKey& key) const {
  return draw_erasing(key, augmentation.random_erasing, height_, width_);
}

void ImageTransform::prepare(const ImageView& image, float* out, const Shift& view) {
  frame(image, view);
  normalise(out);
}

void ImageTransform::prepare(const ImageView& image, const Augmentation& augmentation, const SampleKey& key,
                             float* out) {
  frame_augmented(image, augmentation, key);
  normalise(out);
  erase(draw_erased(augmentation, key), width_, out);
}

void ImageTransform::stage(const ImageView& image, std::uint8_t* out, const Shift& view) {
  frame(image, view);
  std::copy_n(frame_.pixels.data(), frame_.view().bytes(), out);
}

ImageDraws ImageTransform::stage(const ImageView& image, const Augmentation& augmentation, const SampleKey& key,
                                 std::uint8_t* out) {
  ImageDraws draws{.shift = {}, .erased = draw_erased(augmentation, key)};
  // A device can cut a window when nothing stands between that and normalising.
  if (augmentation.crop_and_flip && cropping_ == Cropping::padded && !augmentation.changes_colors() &&
      as_stored(image)) {
    draws.shift = augmentation.shift > 0 ? draw_shift(key, augmentation.shift) : draw_padded_crop(key);
    std::copy_n(image.pixels, image.bytes(), out);
  } else {
    frame_augmented(image, augmentation, key);
    std::copy_n(frame_.pixels.data(), frame_.view().bytes(), out);
  }
  return draws;
}

}  // namespace ab
