#pragma once
// SPDX-License-Identifier: MIT
//
// Labelled images. A data set knows its labels and how to get at the pixels of one image; what training does
// to those pixels is the loader's business (transform.h). CIFAR lies in memory, ImageNet in files.

#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/image.h"
#include "engine/core/dtype.h"

namespace ab {

/// How recipes cut training images: a window of the padded image (CIFAR), or a part of random area and shape,
/// scaled to one size (ImageNet).
enum class Cropping : std::uint8_t { padded, resized };

class Dataset : public std::enable_shared_from_this<Dataset> {
 public:
  virtual ~Dataset() = default;

  std::string name;
  std::int64_t count = 0;
  int height = 0,
      width = 0;  ///< of the images that models see, unless LoaderOptions::image_size says otherwise
  int classes = 0;
  Cropping cropping = Cropping::padded;
  /// Mean and deviation that images are normalised by, per channel, 1 being white; by default as recipes for CIFAR-10 have it: the mean of all
  /// images, and the mean of the deviations within each.
  std::array<float, 3> mean{0.4914f, 0.4822f, 0.4465f};
  std::array<float, 3> stddev{0.2023f, 0.1994f, 0.2010f};
  /// Warnings of files that lie there and are not read, or are there twice: sentences for the program to print, once.
  std::vector<std::string> warnings;

  virtual int label(std::int64_t i) const = 0;
  /// The pixels of image i as they are stored, of any size, or the part of them that is wanted: in memory of the set, decoded into
  /// `buffer`, or the calling thread's until it reads again. Many threads may read at once. Throws Error(data) that names the file.
  virtual ImageView read(std::int64_t i, Image& buffer, const ChoosePart& part = {}) const = 0;
  /// The bytes of the file of image i, as decode_image() takes them, where images are files. Throws Error(data) that names it.
  virtual std::vector<std::uint8_t> file(std::int64_t i) const;
  /// What messages call it: the path of a file.
  virtual std::string image_name(std::int64_t i) const { return name + ": image " + std::to_string(i); }
  /// Whether images are read from files while a run goes on, which may be damaged or gone by then.
  virtual bool reads_files() const { return false; }
  /// Throws Error(data) when the set contradicts itself.
  virtual void check() const;
  /// A hash of the labels in their order and, where images are files, of the names: equal on all nodes that
  /// see the same data set.
  virtual std::uint64_t fingerprint() const;
  /// Hashes of the images' contents, as far as these are known without decoding: one hash of all pixels in memory, or the
  /// sizes of at most a thousand files, spread over the list (a million would take a shared disk minutes).
  virtual std::vector<std::uint64_t> contents() const { return {}; }
};

/// Images of one size in host memory, NHWC.
class ImageSet : public Dataset {
 public:
  std::vector<std::uint8_t> pixels;   ///< [count, height, width, 3]
  std::vector<std::uint16_t> labels;  ///< [count], below classes

  std::int64_t image_bytes() const { return std::int64_t{3} * height * width; }
  std::span<const std::uint8_t> image(std::int64_t i) const {
    return {pixels.data() + i * image_bytes(), static_cast<std::size_t>(image_bytes())};
  }
  int label(std::int64_t i) const override { return labels[static_cast<std::size_t>(i)]; }
  ImageView read(std::int64_t i, Image& buffer, const ChoosePart& part = {}) const override;
  void check() const override;
  std::vector<std::uint64_t> contents() const override;
};

/// The first `n` images (all of them when n <= 0 or n >= count).
ImageSet first_images(ImageSet set, std::int64_t n);

struct TrainAndTest;
/// `n` images of `set`, of all classes in proportion, to test on, and the others to train on (--val-from-train).
TrainAndTest hold_out(std::shared_ptr<const Dataset> set, std::int64_t n);
/// How many others there are. Throws Error(config) when there is none.
std::int64_t left_to_train(std::int64_t images, std::int64_t held_out);

/// The labels below set.classes that no image has.
std::vector<int> labels_without_images(const Dataset& set);

/// The images of a run.
struct TrainAndTest {
  std::shared_ptr<const Dataset> train, test;
  /// A hash of both: equal on all nodes, and at all times, where a run sees the same images.
  std::uint64_t fingerprint() const { return train->fingerprint() + 3 * test->fingerprint(); }
  /// Those of both, one after the other.
  std::vector<std::uint64_t> contents() const;
  /// One hash of all that is known of the images.
  std::uint64_t hash() const;
};

/// From bytes to the numbers that a model sees, channel by channel: (byte / 255 - mean) / stddev = byte · scale + shift
struct Normalisation {
  float scale[3], shift[3];
};

/// With the mean and deviation of `set`.
inline Normalisation normalisation_of(const Dataset& set) {
  Normalisation result;
  for (std::size_t c = 0; c < 3; ++c) {
    result.scale[c] = 1.0f / (255.0f * set.stddev[c]);
    result.shift[c] = -set.mean[c] / set.stddev[c];
  }
  return result;
}

/// Rounded once, so that every processor has the same bits.
AB_HD inline float normalised(std::uint8_t byte, float scale, float shift) {
  return std::fma(static_cast<float>(byte), scale, shift);
}

}  // namespace ab
