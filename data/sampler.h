#pragma once
// SPDX-License-Identifier: MIT
//
// Which samples a rank sees, and in which order: pure functions of (seed, epoch), without state.
//
// One order of all samples, perhaps with repetitions, is cut into batches, and batch number s · world_size + rank is step s of `rank`.
// The images that the ranks train on together in a step are therefore the same for any number of ranks that share one
// global batch size.

#include <cstdint>
#include <vector>

namespace ab {

struct Sampler {
  std::int64_t count = 0;       ///< samples in the data set
  std::int64_t batch_size = 1;  ///< per rank
  int rank = 0, world_size = 1;
  std::uint64_t seed = 0;
  /// Training: a new order each epoch, full batches only, equally many on every rank; what is left over at
  /// the end of one epoch's order sits that epoch out. Evaluation: natural order, each sample exactly once
  /// over all ranks; the last batch may be smaller, and a rank may have one batch fewer than another, or
  /// none.
  bool training = true;
  /// Training: every sample of the order stands there so many times in a row, so that an epoch of as many batches shows fewer:
  /// repeated augmentation (Hoffer et al. 2020, "Augment your batch").
  int repeats = 1;

  /// Throws Error(config) when training has not one batch for each rank.
  void check() const;
  /// Batches of this rank in a pass.
  std::int64_t batches_per_epoch() const;
  /// This rank's samples of a pass: batch b is [b · batch_size, (b + 1) · batch_size), cut at the end.
  std::vector<std::int64_t> samples(std::int64_t epoch) const;
  /// How often the order had samples()[place] before that: 0 … repeats-1.
  std::int64_t repetition(std::int64_t place) const { return position(place) % repeats; }

 private:
  /// That of samples()[place] in the order.
  std::int64_t position(std::int64_t place) const {
    return (place / batch_size * world_size + rank) * batch_size + place % batch_size;
  }
};

/// A random order of 0 … count-1, uniform over all orders (Fisher–Yates), by (seed, epoch).
std::vector<std::int64_t> shuffled_order(std::int64_t count, std::uint64_t seed, std::int64_t epoch);

}  // namespace ab
