#pragma once
// SPDX-License-Identifier: MIT
//
// Vectors of float32 in 8 bits, by blocks of neighbours with a scale each, rounded at random (QSGD: Alistarh et al. 2017, arXiv
// 1610.02132, with the largest magnitude in place of the norm):
//   s = max |x_i| / 127     q_i = floor(x_i / s + u_i)     x̂_i = s · q_i      u_i uniform in (0, 1)
// So x̂ is x in the mean, and off by less than s. u has 16 bits. A block with NaN or infinity comes back as NaN. Blocks whose
// s would be denormal are coarser.

#include "engine/core/random.h"
#include "engine/core/tensor.h"
#include "engine/kernels/lanes.h"
#include "engine/kernels/select.h"

namespace ab {

/// A vector of `elements` as `parts` of equally many blocks, as bytes: of each part the q of its blocks, then their s as
/// float32. Zeros follow the vector up to a whole part.
struct Int8Layout {
  /// `block`: a multiple of kDraws.
  Int8Layout(std::int64_t elements, int parts, int block);
  static constexpr int kDraws = 8;  ///< of 16 bits, from one counter of Philox

  AB_HD std::int64_t part_elements() const { return blocks * block; }
  AB_HD std::int64_t part_bytes() const { return blocks * (block + 4); }
  std::int64_t counters() const { return parts * part_elements() / kDraws; }

  std::int64_t elements;
  int parts, block;
  std::int64_t blocks;  ///< of a part
};

/// x: float32 [layout.elements]. bytes: uint8 [parts · part_bytes()]. Draws from counters [first, first + layout.counters()).
void quantise(const Int8Layout& layout, const Tensor& x, const Philox& random, std::uint64_t first,
              const Tensor& bytes);
void dequantise(const Int8Layout& layout, const Tensor& bytes, const Tensor& x);
/// mean [part_elements()]: that of all parts, added in their order.
void mean_of_parts(const Int8Layout& layout, const Tensor& bytes, const Tensor& mean);

namespace kernels {

/// Where block number `row` of all lies.
struct Int8Block {
  AB_HD Int8Block(const Int8Layout& layout, std::int64_t row) {
    const std::int64_t part = row / layout.blocks, number = row % layout.blocks;
    codes = part * layout.part_bytes() + number * layout.block;
    scale = part * layout.part_bytes() + layout.part_elements() + 4 * number;
    begin = row * layout.block;
    const std::int64_t left = layout.elements - begin;
    count = left < 0 ? 0 : left < layout.block ? left : layout.block;
  }
  std::int64_t codes, scale;  ///< in bytes
  std::int64_t begin, count;  ///< of the vector
};

AB_HD inline float scale_at(const std::uint8_t* bytes, std::int64_t at) {
  return *reinterpret_cast<const float*>(bytes + at);
}

struct QuantiseBlock {
  Int8Layout layout;
  const float* x;
  std::uint8_t* bytes;
  Philox random;
  std::uint64_t first;

  template <class Team> AB_HD void operator()(const Team& team, std::int64_t row) const {
    const Int8Block at(layout, row);
    const float* const from = x + at.begin;
    const int largest = lane_max<int>(
        team, at.count, 0, [](float v) { return static_cast<int>(magnitude(v)); }, from);
    constexpr int infinite = 0x7f800000;
    const float scale = largest < infinite ? std::bit_cast<float>(largest) / 127 : std::bit_cast<float>(0x7fc00000);
    if (team.lane() == 0) *reinterpret_cast<float*>(bytes + at.scale) = scale;
    constexpr int draws = Int8Layout::kDraws;
    const bool some = scale > 0;
    const std::uint64_t counter = first + static_cast<std::uint64_t>(row * (layout.block / draws));
    for (int group = team.lane(); group < layout.block / draws; group += team.size()) {
      const Philox::Block drawn = random.block(counter + static_cast<std::uint64_t>(group));
      std::uint8_t* const to = bytes + at.codes + group * draws;
      for (int j = 0; j < draws; ++j) {
        const int i = group * draws + j;
        const float u = (static_cast<float>(drawn.v[j / 2] >> 16 * (j % 2) & 0xffffu) + 0.5f) * 0x1p-16f;
        const float q = some && i < at.count ? floorf(from[i] / scale + u) : 0.0f;
        to[j] = static_cast<std::uint8_t>(static_cast<std::int8_t>(q > 127 ? 127.0f : q < -127 ? -127.0f : q));
      }
    }
  }
};

struct DequantiseBlock {
  Int8Layout layout;
  const std::uint8_t* bytes;
  float* x;

  template <class Team> AB_HD void operator()(const Team& team, std::int64_t row) const {
    const Int8Block at(layout, row);
    const float scale = scale_at(bytes, at.scale);
    const auto* const codes = reinterpret_cast<const std::int8_t*>(bytes + at.codes);
    for (std::int64_t i = team.lane(); i < at.count; i += team.size())
      x[at.begin + i] = scale * static_cast<float>(codes[i]);
  }
};

/// One block of all parts.
struct MeanOfBlocks {
  Int8Layout layout;
  const std::uint8_t* bytes;
  float* mean;

  template <class Team> AB_HD void operator()(const Team& team, std::int64_t row) const {
    constexpr int width = kIsSerial<Team> ? 64 : 1;
    for_each_block<width>(team, layout.block, false, [&](std::int64_t begin, auto count) {
      float sums[width] = {};
      for (int part = 0; part < layout.parts; ++part) {
        const Int8Block at(layout, part * layout.blocks + row);
        const float scale = scale_at(bytes, at.scale);
        const auto* const codes = reinterpret_cast<const std::int8_t*>(bytes + at.codes + begin);
        for (int j = 0; j < count; ++j) sums[j] = fmaf(scale, static_cast<float>(codes[j]), sums[j]);
      }
      float* const to = mean + row * layout.block + begin;
      for (int j = 0; j < count; ++j) to[j] = sums[j] / static_cast<float>(layout.parts);
    });
  }
};

}  // namespace kernels
}  // namespace ab
