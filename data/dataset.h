#pragma once
// SPDX-License-Identifier: MIT
//
// A set of labelled images in host memory.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ab {

/// Images of one size as bytes, NHWC, with one label each.
struct ImageSet {
  std::string name;
  std::int64_t count = 0;
  int height = 0, width = 0, channels = 3;
  int classes = 0;
  std::vector<std::uint8_t> pixels;   ///< [count, height, width, channels]
  std::vector<std::uint16_t> labels;  ///< [count], below classes

  std::int64_t image_bytes() const { return std::int64_t{height} * width * channels; }
  std::span<const std::uint8_t> image(std::int64_t i) const {
    return {pixels.data() + i * image_bytes(), static_cast<std::size_t>(image_bytes())};
  }
};

struct TrainAndTest {
  ImageSet train, test;
};

/// CIFAR-10, binary version: data_batch_1..5.bin and test_batch.bin of 1 + 3072 bytes a record, in `folder`.
/// Throws Error(data) naming the file when one is missing, truncated, or holds a label out of range.
TrainAndTest load_cifar10(const std::string& folder);
/// CIFAR-100, binary version: train.bin and test.bin of 2 + 3072 bytes a record (coarse label, fine label).
TrainAndTest load_cifar100(const std::string& folder);

/// The first `n` images (all of them when n <= 0 or n >= count).
ImageSet first_images(ImageSet set, std::int64_t n);

}  // namespace ab
