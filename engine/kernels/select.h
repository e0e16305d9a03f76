#pragma once
// SPDX-License-Identifier: MIT
//
// Which elements of a vector to send: the k largest by magnitude, exactly or nearly, without sorting and without waiting
// for the device. A search finds thresholds; then one ordered pass writes the indices of what they select, ascending.
//   exact            a radix select over the bits of |x|, which order as the numbers do. Among equal elements the first ones
//                    are taken. A CPU counts 10 or 11 bits a pass, a GPU 4; the result is the same.
//   multi_sampling   MSTopK (Shi et al., MLSys 2021, arXiv 2010.10458): a few rounds of halving between the mean and the
//                    maximum of |x| find a threshold with at most k elements above and one with more; what is missing to
//                    k is a run of those between, which starts at a random place.

#include <bit>

#include "engine/core/random.h"
#include "engine/core/tensor.h"
#include "engine/kernels/lanes.h"

namespace ab {

/// |x| as a number whose order is that of the magnitudes; NaN is above all others.
AB_HD inline std::uint32_t magnitude(float x) { return std::bit_cast<std::uint32_t>(x) & 0x7fffffffu; }

/// The cut of a selection, in device memory: x gives all elements with magnitude >= `above`, and of those in [from, above), in the
/// order of their indices, `need` from number `start` on.
struct Cut {
  std::uint32_t above, from;
  std::int64_t start, need;
};

/// Selections from vectors of n elements.
class Selector {
 public:
  Selector(std::int64_t n, Device device);

  /// `indices`: room for k std::uint32_t. x: float32 [n]. 1 <= k <= n.
  void exact(const Tensor& x, std::int64_t k, std::uint32_t* indices) const;
  /// The place of the run is number `draw` of `random`. Above a density of 0.3, the search starts from the smallest |x|
  /// instead of the mean.
  void multi_sampling(const Tensor& x, std::int64_t k, int rounds, const Philox& random, std::uint64_t draw,
                      std::uint32_t* indices) const;

 private:
  void check(const Tensor& x, std::int64_t k) const;
  void write(const Tensor& x, std::int64_t k, std::uint32_t* indices) const;

  std::int64_t n_;
  Device device_;
  Tensor cut_, search_;     // a Cut; the state of a search
  Tensor counts_, totals_;  // by chunk and bin; by bin
  Tensor blocks_, chunks_;  // elements above and between, before each block; of each chunk
};

namespace kernels {

/// Elements that a team counts, and that it goes through at a time in the ordered pass.
inline constexpr std::int64_t kSelectChunk = 65536, kSelectBlock = 256;

/// A radix select: the upper bits of the k-th magnitude so far, and which of the elements that share them is meant.
struct RadixSearch {
  std::uint32_t prefix;
  std::int64_t left;
};

/// counts[chunk, b] = elements whose bits above `shift + width` are those found, and whose next `width` bits are b.
struct CountDigits {
  const float* x;
  const RadixSearch* search;
  std::int64_t* counts;
  std::int64_t n;
  int shift, width;

  template <class Team> AB_HD void operator()(const Team& team, std::int64_t chunk) const {
    const std::int64_t begin = chunk * kSelectChunk, end = n - begin < kSelectChunk ? n : begin + kSelectChunk;
    const int bins = 1 << width;
    std::int64_t* const row = counts + chunk * bins;
    const int above = shift + width;
    const std::uint32_t prefix = above < 32 ? search->prefix >> above : 0, mask = static_cast<std::uint32_t>(bins - 1);
    const auto matches = [&](std::uint32_t bits) { return above >= 32 || bits >> above == prefix; };
    if constexpr (kIsSerial<Team>) {
      for (int b = 0; b < bins; ++b) row[b] = 0;
      for (std::int64_t i = begin; i < end; ++i) {
        const std::uint32_t bits = magnitude(x[i]);
        if (matches(bits)) ++row[bits >> shift & mask];
      }
    } else {
      constexpr int pack = kLaneWidth<Team, float>;
      constexpr std::uint32_t words = 4, each = 4;  // 16 bins, in registers
      static_assert(kSelectChunk / 32 < 1 << 16, "a lane of a warp counts in 16 bits");
      std::uint64_t found[words] = {};
      for_each_block<pack>(team, end - begin, packable<pack>(pack, x + begin), [&](std::int64_t i, auto count) {
        const auto xs = load(x + begin + i, count);
        for (int j = 0; j < count; ++j) {
          const std::uint32_t bits = magnitude(xs[j]), digit = bits >> shift & mask;
          const std::uint64_t one = matches(bits) ? std::uint64_t{1} << digit % each * 16 : 0;
          for (std::uint32_t w = 0; w < words; ++w) found[w] += digit / each == w ? one : 0;
        }
      });
      for (std::uint32_t w = 0; w < words; ++w)
        for (std::uint32_t b = w * each; b < (w + 1) * each; ++b) {
          const int all = team.sum(static_cast<int>(found[w] >> b % each * 16 & 0xffff));
          if (team.lane() == 0 && b <= mask) row[b] = all;
        }
    }
  }
};

/// One bin per team: the sum over chunks.
struct SumBins {
  const std::int64_t* counts;
  std::int64_t* totals;
  std::int64_t chunks, bins;
  template <class Team> AB_HD void operator()(const Team& team, std::int64_t bin) const {
    std::int64_t total = 0;
    for (std::int64_t c = team.lane(); c < chunks; c += team.size()) total += counts[c * bins + bin];
    total = team.sum(total);
    if (team.lane() == 0) totals[bin] = total;
  }
};

/// One index: the next digit of the k-th magnitude; after the last one, the cut.
struct ChooseDigit {
  const std::int64_t* totals;
  RadixSearch* search;
  Cut* cut;
  int shift, width;
  AB_HD void operator()(std::int64_t) const {
    std::int64_t left = search->left;
    int digit = (1 << width) - 1;
    for (; digit > 0 && totals[digit] < left; --digit) left -= totals[digit];
    search->left = left;
    search->prefix |= static_cast<std::uint32_t>(digit) << shift;
    if (shift == 0) *cut = {search->prefix + 1, search->prefix, 0, left};
  }
};

/// One index.
struct StartRadix {
  RadixSearch* search;
  std::int64_t k;
  AB_HD void operator()(std::int64_t) const { *search = {0, k}; }
};

/// A search by halving; its thresholds lie at anchor + ratio · (largest − anchor).
struct SampleSearch {
  float anchor, largest, low, high, threshold;
  float above, from;               ///< the best thresholds so far with at most k, and with more than k elements
  std::int64_t in_above, in_from;  ///< how many those have
};

/// partial[3 · chunk …] = Σ|x|, max |x|, −min |x| of one chunk.
struct ChunkMagnitudes {
  const float* x;
  double* partial;
  std::int64_t n;
  template <class Team> AB_HD void operator()(const Team& team, std::int64_t chunk) const {
    const float* const from = x + chunk * kSelectChunk;
    const std::int64_t left = n - chunk * kSelectChunk, count = left < kSelectChunk ? left : kSelectChunk;
    const double sum = lane_sum<double>(
        team, count, [](double v) { return v < 0 ? -v : v; }, from);
    const float largest = lane_max<float>(
        team, count, 0.0f, [](float v) { return v < 0 ? -v : v; }, from);
    const float smallest = lane_max<float>(
        team, count, -largest, [](float v) { return v < 0 ? v : -v; }, from);
    if (team.lane() == 0) partial[3 * chunk] = sum, partial[3 * chunk + 1] = largest, partial[3 * chunk + 2] = smallest;
  }
};

/// One index: the state before the first round.
struct StartSearch {
  const double* partial;
  SampleSearch* search;
  std::int64_t chunks, n;
  bool from_smallest;
  AB_HD void operator()(std::int64_t) const {
    double sum = 0, largest = 0, smallest = -partial[1];
    for (std::int64_t c = 0; c < chunks; ++c) {
      sum += partial[3 * c];
      largest = largest < partial[3 * c + 1] ? partial[3 * c + 1] : largest;
      smallest = smallest < partial[3 * c + 2] ? partial[3 * c + 2] : smallest;
    }
    const float anchor = static_cast<float>(from_smallest ? -smallest : sum / static_cast<double>(n));
    const float top = static_cast<float>(largest);
    *search = {anchor, top, 0, 1, anchor + 0.5f * (top - anchor), std::bit_cast<float>(0x7f800000u), 0, 0, n};
  }
};

/// partial[chunk] = elements of one chunk with |x| >= the threshold.
struct ChunkCount {
  const float* x;
  const SampleSearch* search;
  std::int64_t* partial;
  std::int64_t n;
  template <class Team> AB_HD void operator()(const Team& team, std::int64_t chunk) const {
    const float threshold = search->threshold;
    const std::int64_t left = n - chunk * kSelectChunk, count = left < kSelectChunk ? left : kSelectChunk;
    const int found = lane_sum<int>(
        team, count, [threshold](float v) { return (v < 0 ? -v : v) >= threshold ? 1 : 0; }, x + chunk * kSelectChunk);
    if (team.lane() == 0) partial[chunk] = found;
  }
};

/// One row: what a round has found, and the threshold of the next.
struct NextRound {
  const std::int64_t* partial;
  SampleSearch* search;
  std::int64_t chunks, k;
  template <class Team> AB_HD void operator()(const Team& team, std::int64_t) const {
    std::int64_t mine = 0;
    for (std::int64_t c = team.lane(); c < chunks; c += team.size()) mine += partial[c];
    const std::int64_t count = team.sum(mine);
    if (team.lane() != 0) return;
    SampleSearch s = *search;
    const float middle = 0.5f * (s.low + s.high);
    if (count <= k) {
      s.high = middle;
      if (count > s.in_above) s.in_above = count, s.above = s.threshold;
    } else {
      s.low = middle;
      if (count < s.in_from) s.in_from = count, s.from = s.threshold;
    }
    s.threshold = s.anchor + 0.5f * (s.low + s.high) * (s.largest - s.anchor);
    *search = s;
  }
};

/// One index: the cut that the rounds have led to. A vector of zeros gives its first k elements.
struct CutOfSearch {
  const SampleSearch* search;
  Cut* cut;
  std::int64_t k;
  Philox random;
  std::uint64_t draw;
  AB_HD void operator()(std::int64_t) const {
    const SampleSearch s = *search;
    const std::int64_t need = k - s.in_above, places = s.in_from - s.in_above - need + 1;
    const bool somewhere = s.largest > 0 && places > 1;
    *cut = {magnitude(s.above), magnitude(s.from),
            somewhere ? static_cast<std::int64_t>(random.below(draw, static_cast<std::uint64_t>(places))) : 0, need};
  }
};

/// Elements above the cut, and between its thresholds.
struct CutCount {
  std::int32_t above, among;
};

/// One block of elements.
struct CountBlock {
  const float* x;
  const Cut* cut;
  CutCount* blocks;
  std::int64_t n;
  template <class Team> AB_HD void operator()(const Team& team, std::int64_t block) const {
    static_assert(kSelectBlock < 1 << 15, "two counts share an int");
    const std::int64_t begin = block * kSelectBlock, left = n - begin;
    const auto at_least_and_over = [above = cut->above, from = cut->from](float v) {
      return static_cast<int>(magnitude(v) >= from) + (static_cast<int>(magnitude(v) >= above) << 16);
    };
    const int both = lane_sum<int>(team, left < kSelectBlock ? left : kSelectBlock, at_least_and_over, x + begin);
    const int over = both >> 16, at_least = both & 0xffff;
    if (team.lane() == 0) blocks[block] = {over, at_least - over};
  }
};

/// Counts become those before each. Returns the whole.
template <class Team> AB_HD CutCount scan(const Team& team, CutCount* counts, std::int64_t count) {
  CutCount sum{0, 0};
  for (std::int64_t first = 0; first < count; first += team.size()) {
    const std::int64_t i = first + team.lane();
    const CutCount here = i < count ? counts[i] : CutCount{0, 0};
    const CutCount before{team.sum_before(here.above), team.sum_before(here.among)};
    if (i < count) counts[i] = {sum.above + before.above, sum.among + before.among};
    sum.above += team.sum(here.above), sum.among += team.sum(here.among);
  }
  return sum;
}

/// One chunk of blocks: counts become those of the blocks before, in the chunk; `chunks` receives the whole.
struct ScanBlocks {
  CutCount *blocks, *chunks;
  std::int64_t count;
  template <class Team> AB_HD void operator()(const Team& team, std::int64_t chunk) const {
    constexpr std::int64_t each = kSelectChunk / kSelectBlock;
    const std::int64_t first = chunk * each, left = count - first;
    const CutCount whole = scan(team, blocks + first, left < each ? left : each);
    if (team.lane() == 0) chunks[chunk] = whole;
  }
};

/// One row: the same over chunks.
struct ScanChunks {
  CutCount* chunks;
  std::int64_t count;
  template <class Team> AB_HD void operator()(const Team& team, std::int64_t) const { scan(team, chunks, count); }
};

/// One block of elements: the indices of those that are taken, at their places.
struct WriteSelected {
  const float* x;
  const Cut* cut;
  const CutCount *blocks, *chunks;
  std::uint32_t* indices;
  std::int64_t n, k;

  template <class Team> AB_HD void operator()(const Team& team, std::int64_t block) const {
    constexpr std::int64_t each = kSelectChunk / kSelectBlock;
    const CutCount in_chunk = blocks[block], before = chunks[block / each];
    const std::uint32_t above = cut->above, from = cut->from;
    const std::int64_t start = cut->start, need = cut->need;
    std::int64_t at = in_chunk.above + before.above, among = in_chunk.among + before.among;
    // Its own counts are gone, but where the next block begins tells them, except for the last of a chunk.
    const bool last_block = (block + 1) * kSelectBlock >= n;
    if (!last_block && (block + 1) % each != 0 && blocks[block + 1].above == in_chunk.above &&
        (blocks[block + 1].among == in_chunk.among || among >= start + need ||
         before.among + blocks[block + 1].among <= start))
      return;
    // Each lane takes a run of neighbours.
    const std::int64_t of_lane = (kSelectBlock + team.size() - 1) / team.size();
    const std::int64_t last = last_block ? n : (block + 1) * kSelectBlock;
    const std::int64_t begin = block * kSelectBlock + team.lane() * of_lane;
    const std::int64_t end = begin + of_lane < last ? begin + of_lane : last;
    if constexpr (!kIsSerial<Team>) {
      std::int32_t over = 0, at_least = 0;
      for (std::int64_t i = begin; i < end; ++i) over += magnitude(x[i]) >= above, at_least += magnitude(x[i]) >= from;
      at += team.sum_before(over), among += team.sum_before(at_least - over);
    }
    at += among < start ? 0 : among - start < need ? among - start : need;
    for (std::int64_t i = begin; i < end; ++i) {
      const std::uint32_t bits = magnitude(x[i]);
      if (bits < from) continue;
      bool taken = bits >= above;
      if (!taken) taken = among >= start && among < start + need, ++among;
      // With NaN in x thresholds mean nothing; no more than k are written.
      if (taken && at < k) indices[at++] = static_cast<std::uint32_t>(i);
    }
  }
};

}  // namespace kernels
}  // namespace ab
