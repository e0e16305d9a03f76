#pragma once
// SPDX-License-Identifier: MIT
//
// Batches for one rank: shuffled by epoch, augmented, normalised, prepared ahead by a thread of its own.
// What a batch holds is a pure function of (seed, epoch, index), whatever the timing: a sample's augmentation
// depends on (seed, epoch, sample) and the shuffle on (seed, epoch), drawn from Philox.

#include <array>
#include <cstdint>
#include <memory>
#include <optional>

#include "data/dataset.h"
#include "engine/core/tensor.h"

namespace ab {

struct Batch {
  Tensor images;  ///< [N, H, W, C] float32, normalised
  Tensor labels;  ///< [N] int64
  std::int64_t count() const { return labels.numel(); }
};

struct LoaderOptions {
  std::int64_t batch_size = 128;  ///< per rank
  int rank = 0, world_size = 1;
  std::uint64_t seed = 0;
  /// Training: shuffle; every rank gets floor(count / (batch_size · world_size)) full batches a pass.
  /// Evaluation: each sample exactly once over all ranks, in order, the last batches smaller or missing.
  bool training = true;
  bool augment = true;  ///< pad by 4, random crop, random flip (training only)
  std::array<float, 3> mean{0.4914f, 0.4822f, 0.4465f};
  std::array<float, 3> stddev{0.2023f, 0.1994f, 0.2010f};
  int prefetch = 2;  ///< batches prepared ahead by the loader's thread; 0 prepares them inside next()
  double stall_timeout_seconds = 60;  ///< next() gives up when the thread has delivered nothing for so long
};

class Loader {
 public:
  /// Keeps a reference to `set`. Throws Error(config) when training has less than one batch per rank, and
  /// Error(data) when the set contradicts itself.
  Loader(const ImageSet& set, const LoaderOptions& options);
  Loader(ImageSet&& set, const LoaderOptions& options) = delete;
  ~Loader();

  std::int64_t batches_per_epoch() const;
  /// Starts a pass; batches of an unfinished or failed one are discarded.
  void start_epoch(std::int64_t epoch);
  /// The next batch of the pass, or nothing at its end. Rethrows what failed in the preparing thread, such as
  /// Error(data) for a label out of range, and throws Error(data) when that thread has stalled.
  std::optional<Batch> next();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ab
