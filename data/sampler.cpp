// SPDX-License-Identifier: MIT
#include "data/sampler.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "engine/core/check.h"
#include "engine/core/random.h"

namespace ab {
namespace {

constexpr std::uint64_t kShuffleStream = std::uint64_t{0x73687566} << 32;  // "shuf", then the epoch
constexpr std::uint64_t kWindowStream = std::uint64_t{0x77696e64} << 32;   // "wind", then the epoch
constexpr std::uint64_t kPackSeed = 0x7061636b;                            // "pack"
constexpr int kNodeBits = 20;                                              // of the epoch, before the node

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace

std::vector<std::int64_t> shuffled_order(std::int64_t count, std::uint64_t seed, std::int64_t epoch) {
  const Philox random{seed, kShuffleStream + static_cast<std::uint64_t>(epoch)};
  std::vector<std::int64_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  for (std::size_t i = order.size(); i-- > 1;) std::swap(order[i], order[random.below(i, i + 1)]);
  return order;
}

std::vector<std::int64_t> packed_order(std::int64_t count) { return shuffled_order(count, kPackSeed, 0); }

std::vector<std::int64_t> blocks_in_order(std::int64_t count, std::uint64_t seed, std::int64_t epoch) {
  const Philox random{seed, kWindowStream + static_cast<std::uint64_t>(epoch)};
  const std::vector<std::int64_t> packed = packed_order(count);
  std::vector<std::int64_t> order;
  order.reserve(packed.size());
  for (const std::int64_t block : shuffled_order(ceil_div(count, kShuffleBlock), seed, epoch)) {
    const std::int64_t begin = block * kShuffleBlock, end = std::min(begin + kShuffleBlock, count);
    order.insert(order.end(), packed.begin() + begin, packed.begin() + end);
  }
  for (std::size_t i = order.size(); i-- > 1;) {
    const std::size_t begin = i - i % kShuffleWindow;
    std::swap(order[i], order[begin + random.below(i, i - begin + 1)]);
  }
  return order;
}

void Sampler::check() const {
  AB_CHECK(!training || batches_per_epoch() > 0, "{} training images are fewer than one batch of {}{}", count,
           batch_size,
           world_size == 1 ? "; choose a smaller batch"
                           : fmt::format(" on each of {} ranks; choose a smaller batch or fewer ranks", world_size));
}

std::int64_t Sampler::batches_per_epoch() const {
  if (training) return count / batch_size / world_size;
  const std::int64_t batches = ceil_div(count, batch_size);
  return batches > rank ? ceil_div(batches - rank, world_size) : 0;
}

std::vector<std::int64_t> Sampler::samples(std::int64_t epoch) const {
  const int node = rank / ranks_of_order();
  std::vector<std::int64_t> order;
  if (training)
    order = (shuffle == Shuffle::full ? shuffled_order : blocks_in_order)(ceil_div(count - node, nodes), seed,
                                                                          epoch + (std::int64_t{node} << kNodeBits));
  const std::int64_t places = batches_per_epoch() * batch_size;
  std::vector<std::int64_t> mine;
  mine.reserve(static_cast<std::size_t>(std::min(places, count)));
  for (std::int64_t place = 0; place < places; ++place) {
    const std::int64_t at = position(place);
    if (at >= count) break;  // the last batch of an evaluation
    mine.push_back(training ? order[static_cast<std::size_t>(at / repeats)] * nodes + node : at);
  }
  return mine;
}

}  // namespace ab
