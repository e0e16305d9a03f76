#pragma once
// SPDX-License-Identifier: MIT
//
// Batches for one rank: shuffled by epoch, augmented, normalised, prepared ahead by threads of its own.
// The contents of a batch are a pure function of (seed, epoch, index), whatever the timing and the number of
// threads: a sample's augmentation depends on (seed, epoch, sample, repetition), the shuffle on (seed, epoch), and the
// mixing of a batch on (seed, epoch, batch), all drawn from Philox.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "data/bad_images.h"
#include "data/dataset.h"
#include "data/mix.h"
#include "data/sampler.h"
#include "data/transform.h"
#include "engine/core/tensor.h"

namespace ab {

struct Batch {
  Tensor images;  ///< [N, H, W, 3] float32, normalised; or uint8, see LoaderOptions::staged
  Tensor labels;  ///< [N] int64
  /// With mixup or CutMix: the labels of the images mixed in, and the share of `labels` in the loss; else
  /// undefined, 1.
  Tensor mixed_labels{};
  double mix = 1;
  /// For a staged batch: what finish_images() still has to do to its bytes.
  std::vector<ImageDraws> draws{};
  Mix pixel_mix{};
  std::int64_t count() const { return labels.numel(); }
};

/// Of some epochs, the height and width of their images.
struct EpochSize {
  int side = 0;
  std::int64_t end = 0;  ///< the epoch after them
};

struct LoaderOptions {
  std::int64_t batch_size = 128;  ///< per rank
  int rank = 0, world_size = 1;
  std::uint64_t seed = 0;
  /// Training: shuffle; every rank gets floor(count / (batch_size · world_size)) full batches a pass.
  /// Evaluation: each sample exactly once over all ranks, in order, the last batches smaller or missing.
  bool training = true;
  int repeats = 1;  ///< Sampler::repeats, with other random numbers each time
  Shuffle shuffle = Shuffle::full;
  int nodes = 1;       ///< Sampler::nodes
  int image_size = 0;  ///< height and width of the images; 0: as the data set has them
  /// Training only: the first whose end is not reached says it in place of image_size, which later epochs have.
  std::vector<EpochSize> epoch_sizes{};
  Framing framing{};
  Augmentation augmentation{};  ///< training only, as is `mix`
  MixOptions mix{};
  Shift view{};  ///< evaluation only: how all images are moved
  /// Images stay bytes, for a device to finish (finish_images.h): BatchFeed asks for that.
  bool staged = false;
  int prefetch = 2;  ///< batches waiting, beside the one that is prepared; 0: prepared inside next()
  int threads = 2;   ///< that share the images of a batch
  /// Where images that cannot be read or decoded are written down; null: next() throws. In training another one, drawn by
  /// (seed, epoch, sample), takes the place of each, and of its repetitions, with the augmentation of the sample that it stands for. In evaluation
  /// batches are smaller without them.
  std::shared_ptr<BadImages> bad_images{};
  /// next() gives up when the threads have prepared no image for this long.
  double stall_timeout_seconds = 60;

  /// One image of an epoch, [H, W, 3].
  Shape image_shape(const Dataset& set, std::int64_t epoch) const;
};

class Loader {
 public:
  /// Keeps a reference to `set`; one that a shared_ptr owns lives as long as a thread reads from it. Throws
  /// Error(config) when training has less than one batch per rank.
  Loader(const Dataset& set, const LoaderOptions& options);
  Loader(Dataset&& set, const LoaderOptions& options) = delete;
  /// Waits for threads to finish the image that they prepare, but not for one that hangs in read(), as on a disk that
  /// does not answer: it is left behind where a shared_ptr owns the set. Any other set it waits for.
  ~Loader();

  std::int64_t batches_per_epoch() const;
  /// Starts a pass at batch `first`; batches of an unfinished or failed one are discarded.
  void start_epoch(std::int64_t epoch, std::int64_t first = 0);
  /// Waits until the next `count` batches of the pass are at hand, at most `prefetch` and those that it has, or until
  /// `gives_up`, asked now and then, says so. Throws what next() will throw when it comes to the one among them that cannot be
  /// had.
  void look_ahead(std::int64_t count, const std::function<bool()>& gives_up = {});
  /// The next batch of the pass, or nothing at its end. Rethrows what failed while that batch was prepared,
  /// such as Error(data) for a damaged file, and throws Error(data) when the threads have stalled.
  std::optional<Batch> next();
  /// Whether next() has a batch at hand; never without threads.
  bool ready() const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;  // of the threads too
};

}  // namespace ab
