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

/// The order of the training images in an epoch (--shuffle).
enum class Shuffle : std::uint8_t {
  full,    ///< shuffled_order()
  blocks,  ///< blocks_in_order(): reads of a packed set stay near each other
};

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
  Shuffle shuffle = Shuffle::full;
  /// In training: image i is seen by the ranks of node i % nodes only, which consecutive ranks share, equally many each. Every node
  /// has its own order.
  int nodes = 1;

  /// Throws Error(config) when training has not one batch for each rank.
  void check() const;
  /// Batches of this rank in a pass.
  std::int64_t batches_per_epoch() const;
  /// This rank's samples of a pass: batch b is [b · batch_size, (b + 1) · batch_size), cut at the end.
  std::vector<std::int64_t> samples(std::int64_t epoch) const;
  /// An image that this rank may see, by a number below count.
  std::int64_t seen_image(std::int64_t number) const {
    const int node = rank / ranks_of_order();
    return number % ((count - node + nodes - 1) / nodes) * nodes + node;
  }
  /// How often the order had samples()[place] before that: 0 … repeats-1.
  std::int64_t repetition(std::int64_t place) const { return position(place) % repeats; }

 private:
  /// That of samples()[place] in the order.
  std::int64_t position(std::int64_t place) const {
    const int ranks = ranks_of_order();
    return (place / batch_size * ranks + rank % ranks) * batch_size + place % batch_size;
  }
  int ranks_of_order() const { return world_size / nodes; }
};

/// A random order of 0 … count-1, uniform over all orders (Fisher–Yates), by (seed, epoch).
std::vector<std::int64_t> shuffled_order(std::int64_t count, std::uint64_t seed, std::int64_t epoch);

/// The order in which `data pack` writes `count` images to archives: one shuffle for all times.
std::vector<std::int64_t> packed_order(std::int64_t count);

inline constexpr std::int64_t kShuffleBlock = 1024;    ///< images that lie one after the other in packed archives
inline constexpr std::int64_t kShuffleWindow = 16384;  ///< places of the order that are mixed with each other

/// Blocks of packed_order() in a random order, of which every window is shuffled, by (seed, epoch). Each image is as likely to
/// come at any time of an epoch, to one window, but two of one block are always in one window or in two that follow each other; a window holds a random
/// sample of all classes. Up to one window of images this is uniform over all orders.
std::vector<std::int64_t> blocks_in_order(std::int64_t count, std::uint64_t seed, std::int64_t epoch);

}  // namespace ab
